package moves

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const far = "node-3"

// Restores returns the scenario of a snapshot that replicas are restored from on three nodes, and of a claim that is cloned on another node.
func Restores() []scenario.Scenario {
	r := &restores{}
	return []scenario.Scenario{{Title: "Claims are restored and cloned on other nodes", Steps: []scenario.Step{
		{Says: "the driver runs with move.enabled, and copies 8 MiB a second", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return env.ApplyChart(ctx, "move.enabled=true", "move.rate=8Mi")
		}},
		{Says: "a thin volume on " + here + " has 96 MiB of data and a snapshot, and changes afterwards", Prove: r.origin},
		{Says: "without restoreOnOtherNodes a second replica stays Pending, and an event names its anti-affinity", Prove: beside},
		{Says: "with it three replicas with required anti-affinity run on three nodes, with the data of the snapshot and larger volumes", Prove: r.apart},
		{Says: "a copy goes on after the drivers of both nodes are killed", Prove: r.killed},
		{Says: "of a claim that is deleted while its copy runs nothing is left", Prove: r.deleted},
		{Says: "the clone of a claim on a cordoned node stays unbound without restoreOnOtherNodes, and an event names the rule", Prove: stuck},
		{Says: "with it the clone runs on another node, with the data of the moment at which its copy began, and no snapshot is left on " + here, Prove: cloned},
		{Says: "of a clone that is deleted while its copy runs nothing is left on either node", Prove: deletedClone},
		{Says: "the volume moves to " + there + ", an event names the snapshot that stays on " + here + ", and a claim on " + far + " is restored from it", Prove: r.afterMove},
		{Says: "everything is deleted, and the driver is as shipped", Prove: endRestores},
	}}}
}

// restores is what one step leaves for the next to know.
type restores struct {
	sum string // of the data in the snapshot
}

const sumCommand = "sha256sum /data/content"

func (r *restores) origin(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.CreateClasses, scenario.Apply("restore-class.yaml"), scenario.PodWithClaim("origin", "thin", "256Mi", here))(ctx, env); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, "origin", here); err != nil {
		return err
	}
	said, err := env.ExecInPod(ctx, "origin", "sh", "-ec", "dd if=/dev/urandom of=/data/content bs=1M count=96 2>/dev/null; sync; "+sumCommand)
	if err != nil {
		return err
	}
	r.sum = said
	if err := env.CreateSnapshot(ctx, "origin", "origin"); err != nil {
		return err
	}
	if err := env.WaitSnapshotReady(ctx, "origin"); err != nil {
		return err
	}
	_, err = env.ExecInPod(ctx, "origin", "sh", "-ec", "dd if=/dev/urandom of=/data/content bs=1M count=8 conv=notrunc 2>/dev/null; touch /data/after; sync")
	return err
}

// replicas creates a StatefulSet whose claims are restored from the snapshot.
func replicas(ctx context.Context, env *scenario.Environment, name, class, size, policy, node string, count int) error {
	selector := "{}"
	if node != "" {
		selector = "{kubernetes.io/hostname: " + node + "}"
	}
	return env.ApplyWith(ctx, "restore-replicas.yaml", "NAME", name, "CLASS", class, "SIZE", size, "POLICY", policy, "SELECTOR", selector, "REPLICAS", fmt.Sprint(count),
		"SOURCE", "{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: origin}")
}

// beside has one replica on the node of the snapshot, and no room for a second one there.
func beside(ctx context.Context, env *scenario.Environment) error {
	if err := replicas(ctx, env, "beside", "thin", "256Mi", "OrderedReady", "", 2); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, "beside-0", here); err != nil {
		return err
	}
	if err := env.WaitClaimEvent(ctx, "data-beside-1", api.ReasonSourceNodeExcluded, "the required anti-affinity of pod beside-1 excludes the node of pod demo/beside-0"); err != nil {
		return err
	}
	claim, err := env.Claim(ctx, "data-beside-1")
	if err == nil && claim.Spec.VolumeName != "" {
		err = fmt.Errorf("claim %s has a volume", claim.Name)
	}
	if err != nil {
		return err
	}
	return forget(ctx, env, "beside", 2)
}

// forget deletes a StatefulSet and its claims.
func forget(ctx context.Context, env *scenario.Environment, name string, count int) error {
	objects := []string{"statefulset/" + name}
	for i := range count {
		objects = append(objects, fmt.Sprintf("pvc/data-%s-%d", name, i))
	}
	return env.Delete(ctx, objects...)
}

// apart has replicas on all nodes.
func (r *restores) apart(ctx context.Context, env *scenario.Environment) error {
	begin := time.Now()
	if err := replicas(ctx, env, "apart", "thin-anywhere", "320Mi", "Parallel", "", 3); err != nil {
		return err
	}
	var nodes []string
	for i := range 3 {
		name := fmt.Sprintf("apart-%d", i)
		pod, err := env.WaitPodReady(ctx, name)
		if err != nil {
			return err
		}
		nodes = append(nodes, pod.Spec.NodeName)
		if err := r.hasData(ctx, env, name); err != nil {
			return err
		}
		if err := env.CheckSizes(ctx, "data-"+name, "320Mi"); err != nil {
			return err
		}
		size, err := env.FileSystemSize(ctx, name, "/data")
		if err != nil || size < 280<<20 {
			return fmt.Errorf("the file system of %s has %d bytes: %w", name, size, err)
		}
	}
	env.Reporter.Note("three replicas run on %s after %s", strings.Join(nodes, ", "), time.Since(begin).Round(time.Second))
	slices.Sort(nodes)
	if !slices.Equal(nodes, []string{here, there, far}) {
		return fmt.Errorf("they run on %q", nodes)
	}
	return forget(ctx, env, "apart", 3)
}

// hasData fails unless a pod's volume has what the snapshot has.
func (r *restores) hasData(ctx context.Context, env *scenario.Environment, pod string) error {
	said, err := env.ExecInPod(ctx, pod, "sh", "-ec", sumCommand+"; ls /data")
	if err == nil && (!strings.HasPrefix(said, r.sum) || strings.Contains(said, "after")) {
		err = fmt.Errorf("pod %s has %q, and the snapshot %q", pod, said, r.sum)
	}
	return err
}

// copies returns how many full copies on a node are not complete.
func copies(ctx context.Context, env *scenario.Environment, node string) (count int, err error) {
	rows, err := env.LogicalVolumes(ctx, node)
	for _, row := range rows {
		if strings.Contains(row.Tags, "nodelvm.state=receiving") || strings.Contains(row.Tags, "nodelvm.state=received") {
			count++
		}
	}
	return count, err
}

// begins creates a pod on a node, and waits until the copy for it runs.
func begins(ctx context.Context, env *scenario.Environment, name, node string) error {
	if err := replicas(ctx, env, name, "thin-anywhere", "256Mi", "OrderedReady", node, 1); err != nil {
		return err
	}
	if err := env.WaitClaimEvent(ctx, "data-"+name+"-0", "ProvisioningFailed", "copies VolumeSnapshot demo/origin from node "+here); err != nil {
		return err
	}
	count, err := copies(ctx, env, node)
	if err == nil && count != 1 {
		err = fmt.Errorf("%d copies are on %s", count, node)
	}
	return err
}

// killed kills the driver of the source, and then that of the target.
func (r *restores) killed(ctx context.Context, env *scenario.Environment) error {
	if err := begins(ctx, env, "killed", far); err != nil {
		return err
	}
	for _, node := range []string{here, far} {
		pod, err := env.DriverPodOn(ctx, node)
		if err != nil {
			return err
		}
		now := int64(0)
		if err := env.Client.CoreV1().Pods(cluster.DriverNamespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			return err
		}
		count, err := copies(ctx, env, far)
		if err != nil {
			return err
		}
		env.Reporter.Note("the driver of %s is killed; %d copies are not complete", node, count)
	}
	if err := env.RunsOn(ctx, "killed-0", far); err != nil {
		return err
	}
	if err := r.hasData(ctx, env, "killed-0"); err != nil {
		return err
	}
	return forget(ctx, env, "killed", 1)
}

// deleted deletes a claim while its copy runs.
func (r *restores) deleted(ctx context.Context, env *scenario.Environment) error {
	if err := begins(ctx, env, "deleted", there); err != nil {
		return err
	}
	if err := forget(ctx, env, "deleted", 1); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		rows, err := env.LogicalVolumes(ctx, there)
		for _, row := range rows {
			if strings.Contains(row.Tags, "nodelvm.name=pvc-") {
				return fmt.Errorf("%s is still there: %s", row.Name, row.Tags)
			}
		}
		return err
	})
}

// afterMove restores the snapshot beside the former copy of its volume, and without it.
func (r *restores) afterMove(ctx context.Context, env *scenario.Environment) error {
	if err := env.Delete(ctx, "pod/origin"); err != nil {
		return err
	}
	if err := annotate(ctx, env, "origin", api.AnnotationMoveTo, there); err != nil {
		return err
	}
	if err := env.WaitClaimEvent(ctx, "origin", api.ReasonVolumeMoved, "the volume is on node "+there+" now"); err != nil {
		return err
	}
	if err := env.WaitClaimEvent(ctx, "origin", api.ReasonSnapshotsNotMoved, "the snapshots origin of this claim stay on node "+here); err != nil {
		return err
	}
	for _, name := range []string{"beside-former", "without-former"} {
		if err := replicas(ctx, env, name, "thin-anywhere", "256Mi", "OrderedReady", far, 1); err != nil {
			return err
		}
		if err := env.RunsOn(ctx, name+"-0", far); err != nil {
			return err
		}
		if err := errors.Join(r.hasData(ctx, env, name+"-0"), forget(ctx, env, name, 1), annotate(ctx, env, "origin", api.AnnotationMoveFinish, here)); err != nil {
			return err
		}
		if err := noFormerCopy(ctx, env, here); err != nil {
			return err
		}
	}
	return nil
}

// annotate annotates a claim with a node.
func annotate(ctx context.Context, env *scenario.Environment, claim, key, node string) error {
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, key, node)
	_, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Patch(ctx, claim, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// noFormerCopy waits until a node has no former copy of a volume.
func noFormerCopy(ctx context.Context, env *scenario.Environment, node string) error {
	return cluster.Eventually(ctx, func() error {
		count, err := formerCopies(ctx, env, node)
		if err == nil && count > 0 {
			err = fmt.Errorf("%d former copies are on %s", count, node)
		}
		return err
	})
}

func endRestores(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.DeleteEverything, scenario.DeleteSnapshots, scenario.NoVolumesRemain)(ctx, env); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "storageclass", "thin-anywhere"); err != nil {
		return err
	}
	return scenario.RestoreDriver(ctx, env)
}
