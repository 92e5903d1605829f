package lifecycle

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// readAll reads each file of a read-only mount that takes no writes, and prints one sum.
const readAll = `grep -q ' /data ext4 ro,' /proc/mounts; ! touch /data/file 2>/dev/null; find /data -type f -exec md5sum {} + | sort | md5sum`

// readersProvision is what a read-only copy of 1 GiB provisions: 64 MiB, rounded up to extents.
const readersProvision = 68 << 20

// readersUnderLoad: the copy's content stays, whatever is written to the origin.
func readersUnderLoad(ctx context.Context, env *scenario.Environment) error {
	before, err := env.StableThinCapacity(ctx, sourceNode)
	if err != nil {
		return err
	}
	load, err := env.StartPgbench(ctx, scenario.DatabasePod)
	if err != nil {
		return err
	}
	err = readersAgree(ctx, env)
	transactions, loaded := load.Stop(ctx)
	if err := errors.Join(err, loaded); err != nil {
		return err
	}
	after, err := env.StableThinCapacity(ctx, sourceNode)
	if err != nil {
		return err
	}
	env.Reporter.Note("the copy provisions %d MiB of 1 GiB; pgbench's transactions meanwhile: %d", (before-after)>>20, transactions)
	if before-after > readersProvision {
		return fmt.Errorf("with the copy a thin volume can have %d bytes, before %d", after, before)
	}
	return env.Delete(ctx, "pod/reader-1", "pod/reader-2", "pvc/readers")
}

func readersAgree(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-readers.yaml")(ctx, env); err != nil {
		return err
	}
	if err := besideSource(ctx, env, "readers"); err != nil {
		return err
	}
	if err := scenario.Apply("life-reader-pods.yaml")(ctx, env); err != nil {
		return err
	}
	sums := map[string]bool{}
	for _, pod := range []string{"reader-1", "reader-2", "reader-1"} {
		if err := env.RunsOn(ctx, pod, sourceNode); err != nil {
			return err
		}
		sum, err := env.ExecInPod(ctx, pod, "sh", "-ec", readAll)
		if err != nil {
			return err
		}
		sums[sum] = true
	}
	if len(sums) != 1 {
		return fmt.Errorf("the pods read different data: %v", sums)
	}
	v, err := env.BoundTo(ctx, "readers")
	if err == nil && (v.Node != sourceNode || len(v.Volume.Spec.AccessModes) != 1 || v.Volume.Spec.AccessModes[0] != corev1.ReadOnlyMany) {
		err = fmt.Errorf("the PersistentVolume is on %s, for %v", v.Node, v.Volume.Spec.AccessModes)
	}
	return err
}
