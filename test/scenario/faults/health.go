package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// HealthGate is the feature gate that [Health] needs, in the form of Kubernetes' flag. It is alpha in Kubernetes 1.37.
const HealthGate = "CSIVolumeHealth=true"

// Health proves that the conditions of volumes and of their node reach Kubernetes' objects through CSI's health calls, and leave them after the repair.
func Health() []scenario.Scenario {
	limit := 5 * time.Minute
	return []scenario.Scenario{{Title: "The kubelet writes what the driver says of its volumes and disks", Steps: []scenario.Step{
		{Says: "storage classes are created", Prove: scenario.CreateClasses},
		{Says: "a file system is full: the pod's status says FileSystemFull until there is room", Limit: limit, Prove: fullReachesPod},
		{Says: "a disk that is a volume group dies: the pod's status says VolumeDataMissing, and the CSINode PhysicalVolumeMissing", Limit: limit, Prove: deadDiskReachesStatus},
		{Says: "no volume is left", Prove: scenario.NoVolumesRemain},
	}}}
}

func fullReachesPod(ctx context.Context, env *scenario.Environment) (err error) {
	defer repair(ctx, env, removePods, &err)
	if err := fillFileSystem(ctx, env); err != nil {
		return err
	}
	if err := volumeHealth(ctx, env, "full", "Degraded FileSystemFull"); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, "full", "rm", "/data/file"); err != nil {
		return err
	}
	return volumeHealth(ctx, env, "full")
}

func deadDiskReachesStatus(ctx context.Context, env *scenario.Environment) (err error) {
	defer func() {
		if err == nil {
			err = storageHealth(ctx, env)
		}
	}()
	defer repair(ctx, env, findGroup, &err)
	if err := loseGroup(ctx, env); err != nil {
		return err
	}
	if err := volumeHealth(ctx, env, "lone", "Inaccessible VolumeDataMissing"); err != nil {
		return err
	}
	return storageHealth(ctx, env, "StorageDegraded PhysicalVolumeMissing")
}

// repair removes a fault also after a failure, and adds its own error to that.
func repair(ctx context.Context, env *scenario.Environment, f func(context.Context, *scenario.Environment) error, err *error) {
	ctx, cancel := cluster.CleanUpContext(ctx)
	defer cancel()
	*err = errors.Join(*err, f(ctx, env))
}

// volumeHealth waits until the status of a pod has these conditions of its volume, and no others.
func volumeHealth(ctx context.Context, env *scenario.Environment, pod string, want ...string) error {
	return reported(ctx, env, "pod "+pod, want, func() (got, messages []string, err error) {
		p, err := env.Client.CoreV1().Pods(cluster.Namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return nil, nil, err
		}
		for _, volume := range p.Status.VolumeHealth {
			for _, c := range volume.HealthConditions {
				got, messages = append(got, string(c.Status)+" "+c.Reason), append(messages, volume.Name+": "+c.Message)
			}
		}
		return got, messages, nil
	})
}

// storageHealth waits until the CSINode of faultNode has these conditions of the driver's storage, and no others.
func storageHealth(ctx context.Context, env *scenario.Environment, want ...string) error {
	return reported(ctx, env, "CSINode "+faultNode, want, func() (got, messages []string, err error) {
		node, err := env.Client.StorageV1().CSINodes().Get(ctx, faultNode, metav1.GetOptions{})
		if err != nil {
			return nil, nil, err
		}
		for _, storage := range node.Status.StorageHealth {
			for _, c := range storage.HealthConditions {
				got, messages = append(got, string(c.Status)+" "+c.Reason), append(messages, storage.Name+": "+c.Message)
			}
		}
		return got, messages, nil
	})
}

func reported(ctx context.Context, env *scenario.Environment, object string, want []string, read func() (got, messages []string, err error)) error {
	began := time.Now()
	var messages []string
	err := cluster.Eventually(ctx, func() error {
		got, said, err := read()
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("the status of %s has the conditions %q, want %q: %q (this needs the feature gate %s)", object, got, want, said, HealthGate)
		}
		messages = said
		return err
	})
	if err != nil {
		return err
	}
	env.Reporter.Note("%s after %.0f s: %q %q", object, time.Since(began).Seconds(), want, messages)
	return nil
}
