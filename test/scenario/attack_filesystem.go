package scenario

import (
	"context"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// attackWithImages is a tenant who writes a file system on a raw block volume, and has the node mount a copy of it.
func attackWithImages() Scenario {
	run := &nodeRun{}
	return Scenario{Title: "A tenant writes a corrupt file system for the node to mount", Steps: []Step{
		{Says: "a pod without privilege writes " + damagedExt4.name + " on a raw thin volume, which is snapshotted", Prove: imageIsSnapshotted},
		{Says: "the run of the node and of its driver is noted", Prove: run.note},
		{Says: "claims with volumeMode Filesystem for a restore and a clone of it get no volume, and events on them say why", Limit: 3 * time.Minute, Prove: conversionsRefused},
		{Says: "an admin allows the restore: the node refuses to mount it, and an event on the pod says so", Limit: 5 * time.Minute, Prove: corruptIsNotMounted},
		{Says: "another tenant's pod on the node gets its volume", Limit: 3 * time.Minute, Prove: victimRunsBeside},
		{Says: "neither the node nor its driver has been restarted", Prove: run.goesOn},
		{Says: "everything is deleted", Prove: attackIsOver},
	}}
}

func imageIsSnapshotted(ctx context.Context, env *Environment) error {
	for _, manifest := range []string{"classes.yaml", "life-classes.yaml"} {
		if err := apply(manifest)(ctx, env); err != nil {
			return err
		}
	}
	if err := env.rawPod(ctx, "image", "thin", "320Mi"); err != nil {
		return err
	}
	if err := env.forge(ctx, "image", damagedExt4); err != nil {
		return err
	}
	if err := env.snapshotOf(ctx, "image", "image"); err != nil {
		return err
	}
	return env.snapshotReady(ctx, "image")
}

// conversionsRefused: csi-provisioner refuses to make a file system's volume of a raw one.
func conversionsRefused(ctx context.Context, env *Environment) error {
	if err := apply("attack-copies.yaml")(ctx, env); err != nil {
		return err
	}
	for claim, words := range map[string]string{
		"image-restore": "modifies the mode of the source volume",
		"image-clone":   "must have the same volume mode",
	} {
		uid, err := env.uidOf(ctx, "pvc/"+claim)
		if err != nil {
			return err
		}
		if err := cluster.Eventually(ctx, func() error { return env.saysOn(ctx, cluster.Namespace, uid, "ProvisioningFailed", words) }); err != nil {
			return err
		}
		if err := env.isPending(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

func corruptIsNotMounted(ctx context.Context, env *Environment) error {
	content, err := env.Kubectl(ctx, "", "get", "volumesnapshot", "-n", cluster.Namespace, "image", "-o", "jsonpath={.status.boundVolumeSnapshotContentName}")
	if err != nil {
		return err
	}
	const allowed = "snapshot.storage.kubernetes.io/allow-volume-mode-change=true"
	if _, err := env.Kubectl(ctx, "", "annotate", "volumesnapshotcontent", content, allowed); err != nil {
		return err
	}
	pod, err := env.uidOf(ctx, "pod/image-restore")
	if err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		return env.saysOn(ctx, cluster.Namespace, pod, "FailedMount", "errors that cannot be repaired automatically")
	})
}

func victimRunsBeside(ctx context.Context, env *Environment) error {
	if err := env.victimRuns(ctx); err != nil {
		return err
	}
	return env.victimIsOnDisks(ctx)
}
