package iolimits

import (
	"context"
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// hasLimit waits until io.max of a pod's cgroup has one line, with this limit of the bytes written.
func hasLimit(ctx context.Context, env *scenario.Environment, pod string, limit int) error {
	want := fmt.Sprintf(" rbps=max wbps=%d riops=max wiops=max", limit)
	return cluster.Eventually(ctx, func() error {
		text, err := onCgroup(ctx, env, pod, "cat io.max")
		if err == nil && !strings.HasSuffix(strings.TrimSpace(text), want) {
			err = fmt.Errorf("io.max of the pod's cgroup is %q, want %q", text, want)
		}
		return err
	})
}

// onCgroup runs a script in the folder of a pod's cgroup.
func onCgroup(ctx context.Context, env *scenario.Environment, pod, script string) (string, error) {
	now, err := env.WaitPodReady(ctx, pod)
	if err != nil {
		return "", err
	}
	text, err := env.RunOnNode(ctx, scenario.FirstNode, "sh", "-ec", fmt.Sprintf(`cd "$(find /sys/fs/cgroup -type d -name "pod%s")"; %s`, now.UID, script))
	return string(text), err
}

// deviceOf returns the number of the device of a claim's volume, as in 253:4.
func deviceOf(ctx context.Context, env *scenario.Environment, claim string) (string, error) {
	volume, err := env.VolumeOf(ctx, claim)
	if err != nil {
		return "", err
	}
	number, err := env.RunOnNode(ctx, scenario.FirstNode, "lvs", "--noheadings", "--separator", ":", "-o", "lv_kernel_major,lv_kernel_minor", "-S", "lv_name="+volume.Lv)
	return strings.TrimSpace(string(number)), err
}

// countScript prints the node's time and the sectors that were written to the device $1, now and after 4 seconds. It lets an earlier limit
// pass by first.
const countScript = `count() { read -r now rest </proc/uptime; read -r a b c d e f sectors rest <"/sys/dev/block/$1/stat"; echo "$now $sectors"; }
sleep 1; count "$1"; sleep 4; count "$1"`

// writeRate measures the bytes that are written to a device per second, by the node's clock.
func writeRate(ctx context.Context, env *scenario.Environment, device string) (float64, error) {
	text, err := env.RunOnNode(ctx, scenario.FirstNode, "sh", "-ec", countScript, "sh", device)
	if err != nil {
		return 0, err
	}
	var begin, end float64
	var before, after int64
	if _, err := fmt.Sscan(string(text), &begin, &before, &end, &after); err != nil {
		return 0, fmt.Errorf("the node counted %q: %w", text, err)
	}
	const sector = 512
	return float64(after-before) * sector / (end - begin), nil
}
