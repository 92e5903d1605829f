package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// Cordoned does something while nodes are cordoned: their names, or "-l" and a selector.
func (env *Environment) Cordoned(ctx context.Context, nodes []string, do func() error) error {
	_, err := env.Kubectl(ctx, "", append([]string{"cordon"}, nodes...)...)
	if err == nil {
		err = do()
	}
	ctx, cancel := cluster.CleanUpContext(ctx)
	defer cancel()
	_, uncordoned := env.Kubectl(ctx, "", append([]string{"uncordon"}, nodes...)...)
	return errors.Join(err, uncordoned)
}

// DeletePods deletes every pod and claim.
func DeletePods(ctx context.Context, env *Environment) error {
	for _, kind := range []string{"pod", "pvc"} {
		if _, err := env.Kubectl(ctx, "", "delete", kind, "-n", cluster.Namespace, "--all", "--wait"); err != nil {
			return err
		}
	}
	return nil
}

// DeletePodsAndVolumes deletes every pod and claim, and waits until no volume is left.
func DeletePodsAndVolumes(ctx context.Context, env *Environment) error {
	return InOrder(DeletePods, NoVolumesRemain)(ctx, env)
}

// NoVolumesRemain waits until no node has a logical volume. It removes empty thin pools, which the driver keeps for some time.
func NoVolumesRemain(ctx context.Context, env *Environment) error {
	return cluster.Eventually(ctx, func() error {
		for _, node := range env.Lab.NodeNames() {
			if err := env.DropEmptyPools(ctx, node); err != nil {
				return err
			}
		}
		return env.CheckNoVolumes(ctx)
	})
}

// DeleteEverything deletes every StatefulSet, pod and claim, and waits until no PersistentVolume is left. Thin pools may stay.
func DeleteEverything(ctx context.Context, env *Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "statefulset", "-n", cluster.Namespace, "--all", "--wait"); err != nil {
		return err
	}
	if err := DeletePods(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		list, err := env.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d PVs are still there", len(list.Items))
		}
		return nil
	})
}

// DeleteSnapshots deletes every VolumeSnapshot, and waits until no VolumeSnapshotContent is left.
func DeleteSnapshots(ctx context.Context, env *Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "volumesnapshot", "-n", cluster.Namespace, "--all", "--wait"); err != nil {
		return err
	}
	return env.WaitNone(ctx, "volumesnapshotcontent")
}

// WaitNone waits until kubectl get finds no object.
func (env *Environment) WaitNone(ctx context.Context, get ...string) error {
	return cluster.Eventually(ctx, func() error {
		left, err := env.Kubectl(ctx, "", append([]string{"get", "-o", "name"}, get...)...)
		if err == nil && left != "" {
			err = fmt.Errorf("these are still there: %s", left)
		}
		return err
	})
}

// CheckNoneLeaked fails if a node has a volume of the driver that no PersistentVolume and no snapshot's content names, or
// lacks one that is named.
func (env *Environment) CheckNoneLeaked(ctx context.Context, node string) error {
	named := map[string]bool{}
	pvs, err := env.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pv := range pvs.Items {
		if on, err := cluster.AffinityNode(&pv); err == nil && on == node {
			named[pv.Spec.CSI.VolumeHandle] = true
		}
	}
	handles, err := env.Kubectl(ctx, "", "get", "volumesnapshotcontent", "-o", "jsonpath={.items[*].status.snapshotHandle}")
	if err != nil {
		return err
	}
	for _, handle := range strings.Fields(handles) {
		named[handle] = true
	}
	rows, err := env.LogicalVolumes(ctx, node)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, row := range rows {
		if !row.IsPool() {
			there[row.Name] = true
		}
	}
	for handle := range named {
		_, lv, _ := strings.Cut(handle, "/")
		if !there[lv] {
			return fmt.Errorf("%s is not on %s", handle, node)
		}
		delete(there, lv)
	}
	if len(there) > 0 {
		return fmt.Errorf("%s has volumes that no object names: %v", node, there)
	}
	return nil
}
