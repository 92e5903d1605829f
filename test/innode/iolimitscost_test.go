//go:build innode

package innode

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// published is a staged volume, and where a pod gets it.
type published struct {
	v               *csi.Volume
	staging, target string
}

func (c client) stagedForPod(t *testing.T, v *csi.Volume, pod string) published {
	t.Helper()
	p := published{v, filepath.Join(t.TempDir(), "staging"), filepath.Join(work, "kubelet/pods", pod, "volumes/kubernetes.io~csi", filepath.Base(v.GetVolumeId()), "mount")}
	must(t, os.Mkdir(p.staging, 0o750))
	must(t, os.MkdirAll(filepath.Dir(p.target), 0o750))
	if _, err := c.NodeStageVolume(t.Context(), stageRequest(v, p.staging, mountCapability("ext4"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.unmount(t, v, p.staging, p.target) })
	return p
}

// calls publish and unpublish the volume.
func (c client) calls(t *testing.T, p published) (publish, unpublish call) {
	return call{"NodePublishVolume", 0, func() error {
			_, err := c.NodePublishVolume(t.Context(), publishRequest(p.v, p.staging, p.target, mountCapability("ext4")))
			return err
		}}, call{"NodeUnpublishVolume", 0, func() error {
			_, err := c.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: p.v.GetVolumeId(), TargetPath: p.target})
			return err
		}}
}

// publishTimes measures NodePublishVolume, each time so late that the driver reads the group again.
func (c client) publishTimes(t *testing.T, p published, count int) (times []time.Duration) {
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
	plain, classed := c.stagedForPod(t, made[0], limitedPod), c.stagedForPod(t, made[1], limitedPod)
	for _, p := range []published{plain, classed} {
		publish, unpublish := c.calls(t, p)
		publish.check(t)
		unpublish.check(t)
	}
	kinds := []struct {
		name  string
		flags []string
		of    published
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
