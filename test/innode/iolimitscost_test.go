//go:build innode

package innode

import (
	"testing"

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

// TestPublishWithLimits: a driver with I/O limits publishes and unpublishes a volume with a class, and one without, without an LVM process.
func TestPublishWithLimits(t *testing.T) {
	withIOLimits(t)
	c := connect(t)
	made := c.createAll(t, createRequest("plain", 16*mebibyte), createRequest("classed", 16*mebibyte))
	must(t, c.modify(t, made[1], "writeIOPS", "1k"))
	capability := mountCapability("ext4")
	for _, v := range made {
		publish, unpublish := c.calls(t, c.staged(t, v, capability, nil, pathInPod(v, capability, limitedPod)))
		publish.check(t)
		unpublish.check(t)
	}
}
