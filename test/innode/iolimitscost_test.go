//go:build innode

package innode

import (
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// calls publish and unpublish the volume.
func (c client) calls(t *testing.T, p opened) (publish, unpublish call) {
	p.client = c // the volume may have been staged over another connection
	return call{"NodePublishVolume", 0, func() error { return p.publish(t) }}, call{"NodeUnpublishVolume", 0, func() error {
		_, err := c.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: p.v.GetVolumeId(), TargetPath: p.target})
		return err
	}}
}

// publishTimes measures NodePublishVolume, each time so late that the driver reads the group again.
func (c client) publishTimes(t *testing.T, p opened, count int) (times []time.Duration) {
	t.Helper()
	publish, unpublish := c.calls(t, p)
	for range count {
		time.Sleep(600 * time.Millisecond)
		begin := time.Now()
		must(t, publish.run())
		times = append(times, time.Since(begin))
		must(t, unpublish.run())
	}
	return times[1:] // the first one opens the connection
}

// TestPublishWithLimits: what NodePublishVolume costs with I/O limits. A volume without a class costs what it costs with a driver that has none, and
// no process.
func TestPublishWithLimits(t *testing.T) {
	withIOLimits(t)
	limiting := driverFlags
	c := connect(t)
	made := c.createAll(t, createRequest("plain", 16*mebibyte), createRequest("classed", 16*mebibyte))
	must(t, c.modify(t, made[1], "writeIOPS", "1k"))
	capability := mountCapability("ext4")
	plain, classed := c.staged(t, made[0], capability, nil, pathInPod(made[0], capability, limitedPod)), c.staged(t, made[1], capability, nil, pathInPod(made[1], capability, limitedPod))
	for _, p := range []opened{plain, classed} {
		publish, unpublish := c.calls(t, p)
		publish.check(t)
		unpublish.check(t)
	}
	kinds := []struct {
		name  string
		flags []string
		of    opened
		times []time.Duration
	}{{"without limits", nil, plain, nil}, {"no class", limiting, plain, nil}, {"a class", limiting, classed, nil}}
	for range 3 {
		for i := range kinds {
			driverFlags = kinds[i].flags
			renewDriver(t)
			kinds[i].times = append(kinds[i].times, connect(t).publishTimes(t, kinds[i].of, 9)...)
		}
	}
	var medians []float64
	for _, k := range kinds {
		slices.Sort(k.times)
		medians = append(medians, k.times[len(k.times)/2].Seconds())
	}
	t.Logf("NodePublishVolume takes %.1f ms with a driver without limits. With limits it takes %.2f times as long without a class, and %.2f times with one",
		1000*medians[0], medians[1]/medians[0], medians[2]/medians[0])
	if ratio := medians[1] / medians[0]; ratio > 1.3 {
		t.Errorf("without a class, NodePublishVolume takes %.2f times as long as with a driver without limits", ratio)
	}
}
