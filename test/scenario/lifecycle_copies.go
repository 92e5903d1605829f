package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
)

const annSelectedNode = "volume.kubernetes.io/selected-node"

func copies() Scenario {
	return Scenario{Title: "A copy is created on the node of its source, and its pod runs there", Steps: []Step{
		{Says: "the pod of a clone prefers another node, and runs on the source's node", Prove: cloneRuns},
		{Says: "a restore of a snapshot that does not exist yet, and a clone of that restore: the scheduler selects " + otherNode + " for both, and an event says what is missing", Prove: scheduledElsewhere},
		{Says: "the snapshot is taken on " + sourceNode + ": the driver returns both claims to the scheduler, and their pods run there with the snapshot's data", Prove: takenBack},
		{Says: "snapshot and origin are deleted: both copies keep their data", Prove: copiesLiveOn},
	}}
}

// besideSource waits until a claim's copy is made, and proves that it was by this driver's choice on the source's node.
func (env *Environment) besideSource(ctx context.Context, name string) error {
	v, err := env.WaitClaimBound(ctx, name)
	if err != nil {
		return err
	}
	claim, err := env.Claim(ctx, name)
	if err != nil {
		return err
	}
	if v.Node != sourceNode || claim.Annotations[annSelectedNode] != sourceNode {
		return fmt.Errorf("claim %s has its volume on %s (selected: %s), its source is on %s",
			name, v.Node, claim.Annotations[annSelectedNode], sourceNode)
	}
	said, err := env.WaitClaimEvent(ctx, name, "SourceNodeSelected", sourceNode)
	if err != nil {
		return err
	}
	env.Reporter.Note("%s: %s", name, said)
	return nil
}

func (env *Environment) runsOn(ctx context.Context, name, node string) error {
	pod, err := env.WaitPodReady(ctx, name)
	if err == nil && pod.Spec.NodeName != node {
		err = fmt.Errorf("pod %s runs on %s, not on %s", name, pod.Spec.NodeName, node)
	}
	return err
}

func cloneRuns(ctx context.Context, env *Environment) error { return env.podOf(ctx, "clone-early") }

// podOf starts a pod, of the claim's own name, that is drawn elsewhere, and waits until it runs on the source's node.
func (env *Environment) podOf(ctx context.Context, claim string) error {
	text, err := manifests.ReadFile("manifests/life-pod.yaml")
	if err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, strings.ReplaceAll(string(text), "CLAIM", claim), "apply", "-f", "-"); err != nil {
		return err
	}
	return env.runsOn(ctx, claim, sourceNode)
}

var lateCopies = []string{"restore-late", "clone-late"} // claims, and their pods

func scheduledElsewhere(ctx context.Context, env *Environment) error {
	if err := apply("life-late.yaml")(ctx, env); err != nil {
		return err
	}
	for _, name := range lateCopies {
		err := cluster.Eventually(ctx, func() error {
			claim, err := env.Claim(ctx, name)
			if err == nil && claim.Annotations[annSelectedNode] != otherNode {
				err = fmt.Errorf("the node selected for claim %s is %q%s", name, claim.Annotations[annSelectedNode], env.LastEvents(ctx, name))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	said, err := env.WaitClaimEvent(ctx, "restore-late", "ProvisioningFailed", `"late" not found`)
	if err == nil {
		env.Reporter.Note("csi-provisioner says: %s", said)
	}
	return err
}

func takenBack(ctx context.Context, env *Environment) error {
	if err := apply("life-origin.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.runsOn(ctx, "origin", sourceNode); err != nil {
		return err
	}
	if err := apply("life-late-snapshot.yaml")(ctx, env); err != nil {
		return err
	}
	for _, name := range lateCopies {
		if err := env.besideSource(ctx, name); err != nil {
			return err
		}
		if err := env.runsOn(ctx, name, sourceNode); err != nil {
			return err
		}
	}
	return env.copiesRead(ctx)
}

func (env *Environment) copiesRead(ctx context.Context) error {
	for _, name := range lateCopies {
		if content, err := env.ExecInPod(ctx, name, "cat", "/data/file"); err != nil || content != "original" {
			return errors.Join(err, fmt.Errorf("the file in %s says %q", name, content))
		}
	}
	return nil
}

func copiesLiveOn(ctx context.Context, env *Environment) error {
	if err := env.Delete(ctx, "volumesnapshot/late", "pod/origin", "pvc/origin"); err != nil {
		return err
	}
	// From the disk, not from memory.
	if _, err := env.RunOnNode(ctx, sourceNode, "sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"); err != nil {
		return err
	}
	if err := env.copiesRead(ctx); err != nil {
		return err
	}
	return env.Delete(ctx, "pod/restore-late", "pod/clone-late")
}

func room() Scenario {
	return Scenario{Title: "A copy waits for capacity", Steps: []Step{
		{Says: "a volume fills " + sourceNode + " but for 1 GiB", Prove: fill},
		{Says: "a restore of 1.5 GiB stays Pending, and an event says why", Prove: restoreWaits},
		{Says: "the filler is deleted: the restore succeeds without help", Prove: restoreProceeds},
		{Says: "without a pod it is expanded to 1600 MiB; its file system is expanded when the first pod starts", Prove: growsUnused},
	}}
}

func fill(ctx context.Context, env *Environment) error {
	free, err := env.publishedRoom(ctx, sourceNode)
	if err != nil {
		return err
	}
	text, err := manifests.ReadFile("manifests/life-filler.yaml")
	if err != nil {
		return err
	}
	sized := strings.ReplaceAll(string(text), "SIZE", fmt.Sprint(free-1<<30))
	if _, err := env.Kubectl(ctx, sized, "apply", "-f", "-"); err != nil {
		return err
	}
	return env.runsOn(ctx, "filler", sourceNode)
}

// publishedRoom is the largest thin volume that a node offers, once that stands still: what was made a moment ago may not
// be counted yet.
func (env *Environment) publishedRoom(ctx context.Context, node string) (int64, error) {
	var last int64
	var since time.Time
	err := cluster.Eventually(ctx, func() error {
		list, err := env.Client.StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, c := range list.Items {
			if c.StorageClassName != thinClass || c.NodeTopology.MatchLabels[cluster.TopologyKey] != node {
				continue
			}
			if now := c.MaximumVolumeSize.Value(); now != last {
				last, since = now, time.Now()
			}
			if standing := time.Since(since); standing < 3*time.Second {
				return fmt.Errorf("%s offers %d bytes, since %s", node, last, standing)
			}
			return nil
		}
		return fmt.Errorf("no CSIStorageCapacity for class %s and node %s", thinClass, node)
	})
	return last, err
}

func restoreWaits(ctx context.Context, env *Environment) error {
	if err := apply("life-restore-large.yaml")(ctx, env); err != nil {
		return err
	}
	said, err := env.WaitClaimEvent(ctx, "restore-large", "ProvisioningFailed", "until the thin pool has capacity")
	if err != nil {
		return err
	}
	env.Reporter.Note("nodelvm says: %s", said)
	claim, err := env.Claim(ctx, "restore-large")
	if err != nil {
		return err
	}
	if claim.Status.Phase != corev1.ClaimPending || claim.Annotations[annSelectedNode] != sourceNode {
		return fmt.Errorf("the claim is %s, its node %q", claim.Status.Phase, claim.Annotations[annSelectedNode])
	}
	return nil
}

// proceedsWithin is what csi-provisioner's longest wait (30 s) and the filler's removal come to, on a slow node.
const proceedsWithin = 2 * time.Minute

func restoreProceeds(ctx context.Context, env *Environment) error {
	if err := env.Delete(ctx, "pod/filler", "pvc/filler"); err != nil {
		return err
	}
	start := time.Now()
	if err := env.besideSource(ctx, "restore-large"); err != nil {
		return err
	}
	took := time.Since(start).Round(100 * time.Millisecond)
	env.Reporter.Note("it took %s from when the filler's claim was gone", took)
	if took > proceedsWithin {
		return fmt.Errorf("the restore took %s from when the filler's claim was gone, want at most %s", took, proceedsWithin)
	}
	return env.sizesAgree(ctx, "restore-large", "1536Mi")
}

func growsUnused(ctx context.Context, env *Environment) error {
	const claim, size = "restore-large", "1600Mi"
	if err := env.RequestSize(ctx, claim, size); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return env.claimGrown(ctx, claim, size, corev1.PersistentVolumeClaimNodeResizePending) }); err != nil {
		return err
	}
	if err := env.podOf(ctx, claim); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return env.claimGrown(ctx, claim, size, "") }); err != nil {
		return err
	}
	if size, err := env.fileSystemSize(ctx, claim, "/data"); err != nil || size < 1450<<20 {
		return errors.Join(err, fmt.Errorf("the file system has %d MiB", size>>20))
	}
	return env.sizesAgree(ctx, claim, size)
}
