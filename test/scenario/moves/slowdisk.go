package moves

import (
	"context"
	"fmt"
	"time"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// slowMetadata lets the driver read $1 bytes per second of the metadata of each thin pool.
const slowMetadata = `pod=$(dirname "$(cut -d: -f3 /proc/$(pgrep -ox nodelvm)/cgroup)")
for d in /sys/block/dm-*; do case $(cat "$d/dm/name") in *_tmeta) echo "$(cat "$d/dev") rbps=$1" >"/sys/fs/cgroup$pod/io.max";; esac; done
grep rbps= "/sys/fs/cgroup$pod/io.max"`

const (
	slowRate = "512" // thin_delta reads blocks of 4 KiB

	longestRequest = 2 * time.Minute // kubelet's, csi-provisioner's

	// A removal of a snapshot waits 10 s for thin_delta, which ends only when its reads have ended.
	cancelTime = time.Minute
)

// comparesSlowly moves the volumes although thin_delta takes longer than a request may. A move that is cancelled meanwhile leaves the pod at once.
func (m *database) comparesSlowly(ctx context.Context, env *scenario.Environment) error {
	if err := copyAhead(ctx, env, there); err != nil {
		return err
	}
	if _, err := env.RunOnNode(ctx, here, "sh", "-ec", slowMetadata, "sh", slowRate); err != nil {
		return err
	}
	if _, _, err := m.stopUnderLoad(ctx, env); err != nil {
		return err
	}
	const comparing = "compares it with its last snapshot"
	if err := reach(ctx, env, thin[0], api.MoveCopying, comparing); err != nil {
		return err
	}
	if err := request(ctx, env, api.AnnotationMoveTo, none); err != nil {
		return err
	}
	cancelled := time.Now()
	if err := allReach(ctx, env, api.MoveCancelled, ""); err != nil {
		return err
	}
	took := time.Since(cancelled)
	env.Reporter.Note("cancelled in %s while thin_delta runs", took.Round(time.Second))
	if took > cancelTime {
		return fmt.Errorf("the driver cancelled the move in %s", took.Round(time.Second))
	}
	if err := env.RunsOn(ctx, pod, here); err != nil {
		return err
	}
	if err := m.rowsAreThere(ctx, env); err != nil {
		return err
	}
	if err := copyAhead(ctx, env, there); err != nil {
		return err
	}
	old, err := env.WaitPodReady(ctx, pod)
	if err != nil {
		return err
	}
	if _, _, err = m.stopUnderLoad(ctx, env); err != nil {
		return err
	}
	if err := reach(ctx, env, thin[0], api.MoveCopying, comparing); err != nil {
		return err
	}
	began := time.Now()
	if err := cluster.Eventually(ctx, func() error { return env.PodReplaced(ctx, pod, old.UID) }); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, pod, there); err != nil {
		return err
	}
	took = time.Since(began)
	env.Reporter.Note("the pod runs on %s %s after the comparison began", there, took.Round(time.Second))
	if took < longestRequest {
		return fmt.Errorf("the comparison took less than %s", longestRequest)
	}
	return m.rowsAreThere(ctx, env)
}
