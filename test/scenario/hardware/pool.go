package hardware

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// pooledPod is the pod, and the claim, on a thin volume.
const pooledPod = "pooled"

// failedPool returns the scenario in which a thin pool loses the disk with its metadata for a while.
func failedPool() scenario.Scenario {
	return scenario.Scenario{Title: "A thin pool's disk fails and works again", Steps: []scenario.Step{
		{Says: "a pod writes to a thin volume", Limit: 20 * time.Minute, Prove: scenario.InOrder(
			scenario.Apply("life-classes.yaml"), scenario.PodWithClaim(pooledPod, "thin", "96Mi", scenario.FirstNode), scenario.PodReady(pooledPod), writePooled("before"))},
		{Says: "the disk with the pool's metadata fails: a write fails, and when the disk works again, an event of the claim says what to do", Prove: failMetadata},
		{Says: "the pod is deleted and created again: the volume has its data, and takes writes", Prove: restartPooled},
		{Says: "everything is deleted", Prove: func(ctx context.Context, env *scenario.Environment) error {
			if err := scenario.DeleteEverything(ctx, env); err != nil {
				return err
			}
			return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
		}},
	}}
}

// writePooled returns what a step does to write a file to chunks that the pool has not allocated yet, so that the pool's metadata changes.
func writePooled(name string) func(context.Context, *scenario.Environment) error {
	return func(ctx context.Context, env *scenario.Environment) error {
		_, err := env.ExecInPod(ctx, pooledPod, "sh", "-ec", scenario.PatternCommand+" | dd of=/data/"+name+" bs=1M iflag=fullblock conv=fsync")
		return err
	}
}

func failMetadata(ctx context.Context, env *scenario.Environment) error {
	disk, err := metadataDisk(ctx, env)
	if err != nil {
		return err
	}
	if err := env.Lab.ActOnDisk(ctx, "fail", scenario.FirstNode, disk); err != nil {
		return err
	}
	written := writePooled("meanwhile")(ctx, env)
	if err := env.Lab.ActOnDisk(ctx, "repair", scenario.FirstNode, disk); err != nil {
		return err
	}
	if written == nil {
		return fmt.Errorf("a write succeeded although %s, which has the pool's metadata, failed", disk)
	}
	return env.WaitClaimEvent(ctx, pooledPod, "ThinPoolFailed", "end all pods with volumes of the pool")
}

// metadataDisk returns the serial number of the disk with the pool's metadata. Before, it moves the metadata from the disk on which the pool's data
// begins: without that disk, writes would fail before they change the metadata.
func metadataDisk(ctx context.Context, env *scenario.Environment) (string, error) {
	data, err := firstDevice(ctx, env, "_tdata")
	if err != nil {
		return "", err
	}
	metadata, err := firstDevice(ctx, env, "_tmeta")
	if err == nil && metadata == data {
		if err = env.RunInGroup(ctx, scenario.FirstNode, "pvmove -qq -i 1 -n nodelvm-thin_tmeta "+metadata); err == nil {
			metadata, err = firstDevice(ctx, env, "_tmeta")
		}
	}
	if err != nil {
		return "", err
	}
	serial, err := env.RunOnNode(ctx, scenario.FirstNode, "lsblk", "--nodeps", "--noheadings", "--output", "SERIAL", metadata)
	return strings.TrimSpace(string(serial)), err
}

// firstDevice returns the device with the first extents of the logical volume whose name ends so.
func firstDevice(ctx context.Context, env *scenario.Environment, suffix string) (string, error) {
	type row struct {
		Devices string `json:"devices"`
	}
	rows, err := cluster.ReportLVM[row](ctx, env.Cluster, scenario.FirstNode, "lv", "lvs", "-a", "-o", "devices", "-S", "lv_name=~"+suffix+"$")
	if err != nil {
		return "", err
	}
	if len(rows) == 0 {
		return "", errors.New("no logical volume has a name that ends with " + suffix)
	}
	device, _, _ := strings.Cut(rows[0].Devices, "(")
	return device, nil
}

func restartPooled(ctx context.Context, env *scenario.Environment) error {
	if err := env.Delete(ctx, "pod/"+pooledPod); err != nil {
		return err
	}
	if err := scenario.InOrder(scenario.PodWithClaim(pooledPod, "thin", "96Mi", scenario.FirstNode), scenario.PodReady(pooledPod))(ctx, env); err != nil {
		return err
	}
	const same = `[ "$(` + scenario.PatternCommand + ` | md5sum)" = "$(md5sum </data/before)" ]`
	if _, err := env.ExecInPod(ctx, pooledPod, "sh", "-ec", same); err != nil {
		return err
	}
	if err := writePooled("after")(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return scenario.DoctorFindsNothing(ctx, env) })
}
