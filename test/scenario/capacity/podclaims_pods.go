package capacity

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// What the scenarios of pods with several claims have in common: pods, and nodes with just so much room.

const (
	togetherClass = "together"
	filler        = "filler" // an admin's own volume, which takes what a scenario does not want to be free
	mebibyte      = 1 << 20
)

// volumeWanted is a volume of a pod.
type volumeWanted struct {
	name      string
	mib       int64
	ephemeral bool // a generic ephemeral volume; else a claim of the name POD-NAME
}

// podWanted is a pod that does nothing.
type podWanted struct {
	name    string
	volumes []volumeWanted
}

func (v volumeWanted) spec() corev1.PersistentVolumeClaimSpec {
	class := togetherClass
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceStorage: *resource.NewQuantity(v.mib*mebibyte, resource.BinarySI)}},
	}
}

// create makes the pod's claims, and then the pod.
func (p podWanted) create(ctx context.Context, env *scenario.Environment) error {
	second := int64(1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: &second,
		Containers: []corev1.Container{{
			Name: "main", Image: scenario.BusyboxImage, Command: []string{"sleep", "infinity"},
		}},
	}}
	for _, v := range p.volumes {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.claim(v)}}
		if v.ephemeral {
			source = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: v.spec()}}}
		} else {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: p.claim(v)}, Spec: v.spec()}
			if _, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: v.name, VolumeSource: source})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: v.name, MountPath: "/" + v.name})
	}
	_, err := env.Client.CoreV1().Pods(cluster.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// claim names a volume's claim as Kubernetes names that of an ephemeral one.
func (p podWanted) claim(v volumeWanted) string { return p.name + "-" + v.name }

// leave has so many MiB free on each node, for the first, the second and the third, and waits until the scheduler knows.
func leave(mib ...int64) func(context.Context, *scenario.Environment) error {
	return func(ctx context.Context, env *scenario.Environment) error {
		if err := scenario.Apply("together-classes.yaml")(ctx, env); err != nil {
			return err
		}
		for i, node := range env.Lab.NodeNames() {
			if err := leaveOn(ctx, env, node, mib[i]); err != nil {
				return err
			}
		}
		for i, node := range env.Lab.NodeNames() {
			if err := cluster.Eventually(ctx, func() error { return offers(ctx, env, node, mib[i]) }); err != nil {
				return err
			}
		}
		return nil
	}
}

// leaveOn changes nothing where so much is free already: for a moment the node would publish all of its room. It removes empty
// thin pools of earlier scenarios: the driver does so after some time, and then more would be free.
func leaveOn(ctx context.Context, env *scenario.Environment, node string, mib int64) error {
	if err := env.DropEmptyPools(ctx, node); err != nil {
		return err
	}
	count, size, err := env.FreeExtents(ctx, node)
	if err != nil || count*size == mib*mebibyte {
		return err
	}
	if err := dropFiller(ctx, env, node); err != nil {
		return err
	}
	groups, err := env.VolumeGroups(ctx, node)
	if err != nil {
		return err
	}
	if count, size, err = env.FreeExtents(ctx, node); err != nil {
		return err
	}
	fill := count - mib*mebibyte/size
	if len(groups) != 1 || fill < 1 {
		return fmt.Errorf("%s has %d groups and %d MiB free, of which %d should be left", node, len(groups), count*size/mebibyte, mib)
	}
	_, err = env.RunOnNode(ctx, node, "lvcreate", "-y", "-an", "-Zn", "-Wn", "-n", filler, "-l", fmt.Sprint(fill), groups[0].Name)
	return err
}

// dropFiller removes the filler of a node, if it has one.
func dropFiller(ctx context.Context, env *scenario.Environment, node string) error {
	rows, err := env.LogicalVolumes(ctx, node)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Name == filler {
			_, err = env.RunOnNode(ctx, node, "lvremove", "-y", row.Group+"/"+filler)
		}
	}
	return err
}

func dropFillers(ctx context.Context, env *scenario.Environment) error {
	for _, node := range env.Lab.NodeNames() {
		if err := dropFiller(ctx, env, node); err != nil {
			return err
		}
	}
	return nil
}

// offers fails unless the node publishes exactly so much room.
func offers(ctx context.Context, env *scenario.Environment, node string, mib int64) error {
	list, err := env.Client.StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		if c.StorageClassName == togetherClass && c.NodeTopology.MatchLabels[cluster.TopologyKey] == node {
			if c.MaximumVolumeSize == nil || c.MaximumVolumeSize.Value() != mib*mebibyte {
				return fmt.Errorf("%s offers %v bytes, want %d MiB", node, c.MaximumVolumeSize, mib)
			}
			return nil
		}
	}
	return fmt.Errorf("no CSIStorageCapacity for class %s and node %s", togetherClass, node)
}

// bare fails if any of the nodes has a volume for a claim.
func bare(ctx context.Context, env *scenario.Environment, nodes ...string) error {
	for _, node := range nodes {
		made, err := claimVolumes(ctx, env, node)
		if err != nil {
			return err
		}
		if len(made) > 0 {
			return fmt.Errorf("%s has %v", node, made)
		}
	}
	return nil
}

// claimVolumes lists what the driver made on a node for claims.
func claimVolumes(ctx context.Context, env *scenario.Environment, node string) ([]string, error) {
	rows, err := env.LogicalVolumes(ctx, node)
	if err != nil {
		return nil, err
	}
	var made []string
	for _, row := range rows {
		if strings.Contains(row.Tags, "nodelvm.") && !slices.Contains(strings.Split(row.Tags, ","), "nodelvm.kind=pool") {
			made = append(made, row.Name)
		}
	}
	return made, nil
}

// endTogether deletes the scenario's pods and claims, and waits until their volumes are gone.
func endTogether(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.DeleteEverything(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return bare(ctx, env, env.Lab.NodeNames()...) })
}
