package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

func copies() scenario.Scenario {
	return scenario.Scenario{Title: "A copy is created on the node of its source, and its pod runs there", Steps: []scenario.Step{
		{Says: "the pod of a clone prefers another node, and runs on the source's node", Prove: cloneRuns},
		{Says: "a restore of a snapshot that does not exist yet, and a clone of that restore: the scheduler selects " + otherNode + " for both, and an event says what is missing", Prove: scheduledElsewhere},
		{Says: "the snapshot is taken on " + sourceNode + ": the driver returns both claims to the scheduler, and their pods run there with the snapshot's data", Prove: takenBack},
		{Says: "snapshot and origin are deleted: both copies keep their data", Prove: copiesLiveOn},
	}}
}

// besideSource waits until a claim's copy is made, and proves that it was by this driver's choice on the source's node.
func besideSource(ctx context.Context, env *scenario.Environment, name string) error {
	v, err := env.WaitClaimBound(ctx, name)
	if err != nil {
		return err
	}
	claim, err := env.Claim(ctx, name)
	if err != nil {
		return err
	}
	if v.Node != sourceNode || claim.Annotations[scenario.AnnSelectedNode] != sourceNode {
		return fmt.Errorf("claim %s has its volume on %s (selected: %s), its source is on %s",
			name, v.Node, claim.Annotations[scenario.AnnSelectedNode], sourceNode)
	}
	return env.WaitClaimEvent(ctx, name, "SourceNodeSelected", sourceNode)
}

func cloneRuns(ctx context.Context, env *scenario.Environment) error {
	return podOf(ctx, env, "clone-early")
}

// podOf starts a pod, of the claim's own name, that is drawn elsewhere, and waits until it runs on the source's node.
func podOf(ctx context.Context, env *scenario.Environment, claim string) error {
	if err := env.ApplyWith(ctx, "life-pod.yaml", "CLAIM", claim); err != nil {
		return err
	}
	return env.RunsOn(ctx, claim, sourceNode)
}

var lateCopies = []string{"restore-late", "clone-late"} // claims, and their pods

func scheduledElsewhere(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-late.yaml")(ctx, env); err != nil {
		return err
	}
	for _, name := range lateCopies {
		err := cluster.Eventually(ctx, func() error {
			claim, err := env.Claim(ctx, name)
			if err == nil && claim.Annotations[scenario.AnnSelectedNode] != otherNode {
				err = fmt.Errorf("the node selected for claim %s is %q%s", name, claim.Annotations[scenario.AnnSelectedNode], env.LastEvents(ctx, name))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return env.WaitClaimEvent(ctx, "restore-late", "ProvisioningFailed", `"late" not found`)
}

func takenBack(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-origin.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, "origin", sourceNode); err != nil {
		return err
	}
	if err := scenario.Apply("life-late-snapshot.yaml")(ctx, env); err != nil {
		return err
	}
	for _, name := range lateCopies {
		if err := besideSource(ctx, env, name); err != nil {
			return err
		}
		if err := env.RunsOn(ctx, name, sourceNode); err != nil {
			return err
		}
	}
	return copiesRead(ctx, env)
}

func copiesRead(ctx context.Context, env *scenario.Environment) error {
	for _, name := range lateCopies {
		if content, err := env.ExecInPod(ctx, name, "cat", "/data/file"); err != nil || content != "original" {
			return errors.Join(err, fmt.Errorf("the file in %s says %q", name, content))
		}
	}
	return nil
}

func copiesLiveOn(ctx context.Context, env *scenario.Environment) error {
	if err := env.Delete(ctx, "volumesnapshot/late", "pod/origin", "pvc/origin"); err != nil {
		return err
	}
	// From the disk, not from memory.
	if _, err := env.RunOnNode(ctx, sourceNode, "sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"); err != nil {
		return err
	}
	if err := copiesRead(ctx, env); err != nil {
		return err
	}
	return env.Delete(ctx, "pod/restore-late", "pod/clone-late")
}

func room() scenario.Scenario {
	return scenario.Scenario{Title: "A copy waits for capacity", Steps: []scenario.Step{
		{Says: "a volume fills " + sourceNode + " but for 1 GiB", Prove: fill},
		{Says: "a restore of 1.5 GiB stays Pending, and an event says why", Prove: restoreWaits},
		{Says: "the filler is deleted: the restore succeeds without help", Prove: restoreProceeds},
		{Says: "without a pod it is expanded to 1600 MiB; its file system is expanded when the first pod starts", Prove: growsUnused},
	}}
}

func fill(ctx context.Context, env *scenario.Environment) error {
	free, err := env.StableThinCapacity(ctx, sourceNode)
	if err != nil {
		return err
	}
	if err := env.ApplyWith(ctx, "life-filler.yaml", "SIZE", fmt.Sprint(free-1<<30)); err != nil {
		return err
	}
	return env.RunsOn(ctx, "filler", sourceNode)
}

func restoreWaits(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-restore-large.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.WaitClaimEvent(ctx, "restore-large", "ProvisioningFailed", "until the thin pool has capacity"); err != nil {
		return err
	}
	claim, err := env.Claim(ctx, "restore-large")
	if err != nil {
		return err
	}
	if claim.Status.Phase != corev1.ClaimPending || claim.Annotations[scenario.AnnSelectedNode] != sourceNode {
		return fmt.Errorf("the claim is %s, its node %q", claim.Status.Phase, claim.Annotations[scenario.AnnSelectedNode])
	}
	return nil
}

// proceedsWithin is what csi-provisioner's longest wait (30 s) and the filler's removal come to, on a slow node.
const proceedsWithin = 2 * time.Minute

func restoreProceeds(ctx context.Context, env *scenario.Environment) error {
	if err := env.Delete(ctx, "pod/filler", "pvc/filler"); err != nil {
		return err
	}
	start := time.Now()
	if err := besideSource(ctx, env, "restore-large"); err != nil {
		return err
	}
	took := time.Since(start).Round(100 * time.Millisecond)
	env.Reporter.Note("it took %s from when the filler's claim was gone", took)
	if took > proceedsWithin {
		return fmt.Errorf("the restore took %s from when the filler's claim was gone, want at most %s", took, proceedsWithin)
	}
	return env.CheckSizes(ctx, "restore-large", "1536Mi")
}

func growsUnused(ctx context.Context, env *scenario.Environment) error {
	const claim, size = "restore-large", "1600Mi"
	if err := env.RequestSize(ctx, claim, size); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error {
		return env.CheckExpanded(ctx, claim, size, corev1.PersistentVolumeClaimNodeResizePending)
	}); err != nil {
		return err
	}
	if err := podOf(ctx, env, claim); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return env.CheckExpanded(ctx, claim, size, "") }); err != nil {
		return err
	}
	if size, err := env.FileSystemSize(ctx, claim, "/data"); err != nil || size < 1450<<20 {
		return errors.Join(err, fmt.Errorf("the file system has %d MiB", size>>20))
	}
	return env.CheckSizes(ctx, claim, size)
}
