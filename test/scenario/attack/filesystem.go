package attack

import (
	"context"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// attackWithImages is a tenant who writes a file system on a raw block volume, and has the node mount a copy of it.
func attackWithImages() scenario.Scenario {
	run := &nodeRun{}
	return scenario.Scenario{Title: "A tenant writes a corrupt file system for the node to mount", Steps: []scenario.Step{
		{Says: "a pod without privilege writes " + damagedExt4.name + " on a raw thin volume, which is snapshotted", Prove: imageIsSnapshotted},
		{Says: "the run of the node and of its driver is noted", Prove: run.note},
		{Says: "claims with volumeMode Filesystem for a restore and a clone of it get no volume, and events on them say why", Limit: 3 * time.Minute, Prove: conversionsRefused},
		{Says: "an admin allows the restore: the node refuses to mount it, and an event on the pod says so", Limit: 5 * time.Minute, Prove: corruptIsNotMounted},
		{Says: "another tenant's pod on the node gets its volume", Limit: 3 * time.Minute, Prove: victimRunsBeside},
		{Says: "neither the node nor its driver has been restarted", Prove: run.goesOn},
		{Says: "everything is deleted", Prove: attackIsOver},
	}}
}

func imageIsSnapshotted(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("classes.yaml", "life-classes.yaml")(ctx, env); err != nil {
		return err
	}
	if err := rawPod(ctx, env, "image", "thin", "320Mi"); err != nil {
		return err
	}
	if err := forge(ctx, env, "image", damagedExt4); err != nil {
		return err
	}
	if err := env.CreateSnapshot(ctx, "image", "image"); err != nil {
		return err
	}
	return env.WaitSnapshotReady(ctx, "image")
}

// conversionsRefused: csi-provisioner refuses to make a file system's volume of a raw one.
func conversionsRefused(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("attack-copies.yaml")(ctx, env); err != nil {
		return err
	}
	for claim, words := range map[string]string{
		"image-restore": "modifies the mode of the source volume",
		"image-clone":   "must have the same volume mode",
	} {
		uid, err := uidOf(ctx, env, "pvc/"+claim)
		if err != nil {
			return err
		}
		if err := cluster.Eventually(ctx, func() error { return saysOn(ctx, env, cluster.Namespace, uid, "ProvisioningFailed", words) }); err != nil {
			return err
		}
		if err := isPending(ctx, env, claim); err != nil {
			return err
		}
	}
	return nil
}

func corruptIsNotMounted(ctx context.Context, env *scenario.Environment) error {
	content, err := env.Kubectl(ctx, "", "get", "volumesnapshot", "-n", cluster.Namespace, "image", "-o", "jsonpath={.status.boundVolumeSnapshotContentName}")
	if err != nil {
		return err
	}
	const allowed = "snapshot.storage.kubernetes.io/allow-volume-mode-change=true"
	if _, err := env.Kubectl(ctx, "", "annotate", "volumesnapshotcontent", content, allowed); err != nil {
		return err
	}
	pod, err := uidOf(ctx, env, "pod/image-restore")
	if err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		return saysOn(ctx, env, cluster.Namespace, pod, "FailedMount", "errors that cannot be repaired automatically")
	})
}

var victimRunsBeside = scenario.InOrder(victimRuns, victimIsOnDisks)
