package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// Limits that proveLimit sets, per second.
const (
	limitRequests = 200
	limitBytes    = 64 << 20 // at 8 MiB, the kernel lets only 6.8 requests of 1 MiB pass in a second
)

// setLimit writes the limits of a logical volume's device to io.max of the pod's control group, as an administrator does: the driver sets
// none.
const setLimit = `group=$(find /sys/fs/cgroup/kubepods -type d -name "pod$1")
device=$(lvs --noheadings --separator : -o lv_kernel_major,lv_kernel_minor -S "lv_name=$2" | tr -d ' ')
echo "$device rbps=$3 wbps=$3 riops=$4 wiops=$4" >"$group/io.max"
grep "^$device " "$group/io.max"`

// proveLimit checks that limits in io.max hold for a volume, with 10 % tolerance.
func proveLimit(ctx context.Context, env *scenario.Environment) (err error) {
	defer func() {
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		err = errors.Join(err, scenario.DeletePodsAndVolumes(ctx, env))
	}()
	if err := env.ApplyWith(ctx, "path-block.yaml", "NAME", pathPod, "CLASS", "fast", "SIZE", pathSize); err != nil {
		return err
	}
	pod, err := env.WaitPodReady(ctx, pathPod)
	if err != nil {
		return err
	}
	volume, err := env.VolumeOf(ctx, pathPod)
	if err != nil {
		return err
	}
	out, err := env.RunOnNode(ctx, pathNode, "sh", "-ec", setLimit, "sh", string(pod.UID), volume.Lv, fmt.Sprint(limitBytes), fmt.Sprint(limitRequests))
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, job := range fioJobs {
		limit := float64(limitRequests)
		if job.size == "1m" {
			limit = limitBytes / (1 << 20)
		}
		rate, err := fio(ctx, env, "/dev/volume", job.rw, job.size, 5*time.Second)
		if err != nil {
			return err
		}
		env.Reporter.Note("%s: %.2f", job.name, rate/limit)
		if rate < 0.9*limit || rate > 1.1*limit {
			return fmt.Errorf("%s: %.1f requests per second, and the limit is %.0f", job.name, rate, limit)
		}
	}
	return nil
}
