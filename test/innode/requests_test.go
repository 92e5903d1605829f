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

const mebibyte = 1 << 20

func mountCapability(fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
	}
}

func blockCapability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

func createRequest(name string, size int64, change ...func(*csi.CreateVolumeRequest)) *csi.CreateVolumeRequest {
	r := &csi.CreateVolumeRequest{
		Name:               name,
		CapacityRange:      &csi.CapacityRange{RequiredBytes: size},
		VolumeCapabilities: []*csi.VolumeCapability{mountCapability("ext4")},
		Parameters:         map[string]string{"volumeGroup": "@fast"},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

// create makes a volume and sees to it that nothing of it is left when the test ends.
func (c client) create(t *testing.T, r *csi.CreateVolumeRequest) *csi.Volume {
	t.Helper()
	return c.createAll(t, r)[0]
}

// createAll makes several volumes that are removed together, which is quicker than one by one.
func (c client) createAll(t *testing.T, requests ...*csi.CreateVolumeRequest) []*csi.Volume {
	t.Helper()
	var made []*csi.Volume
	var ids []string
	t.Cleanup(func() { c.remove(t, ids...) })
	for _, r := range requests {
		reply, err := c.CreateVolume(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		made, ids = append(made, reply.GetVolume()), append(ids, reply.GetVolume().GetVolumeId())
	}
	return made
}

// remove deletes volumes and waits for their wipe. It runs in clean-ups, where the test's own context has ended.
func (c client) remove(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := c.DeleteVolume(background, &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
			t.Errorf("delete %s: %v", id, err)
			return
		}
	}
	for range 240 {
		left := lvNames(t)
		if !slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(left, filepath.Base(id)) }) {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Errorf("some of %v are still there two minutes after their deletion", ids)
}

// mounted stages and publishes a volume; the returned paths are undone when the test ends.
func (c client) mounted(t *testing.T, v *csi.Volume, capability *csi.VolumeCapability) (staging, target string) {
	t.Helper()
	dir := t.TempDir()
	staging, target = filepath.Join(dir, "staging"), filepath.Join(dir, "target")
	if err := os.Mkdir(staging, 0o750); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.unmount(t, v, staging, target) })
	if _, err := c.NodeStageVolume(t.Context(), stageRequest(v, staging, capability)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NodePublishVolume(t.Context(), publishRequest(v, staging, target, capability)); err != nil {
		t.Fatal(err)
	}
	return staging, target
}

func (c client) unmount(t *testing.T, v *csi.Volume, staging, target string) {
	t.Helper()
	if _, err := c.NodeUnpublishVolume(background, &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: target}); err != nil {
		t.Error(err)
	}
	if _, err := c.NodeUnstageVolume(background, &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging}); err != nil {
		t.Error(err)
	}
}

func stageRequest(v *csi.Volume, staging string, capability *csi.VolumeCapability) *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging, VolumeCapability: capability, VolumeContext: v.GetVolumeContext()}
}

func publishRequest(v *csi.Volume, staging, target string, capability *csi.VolumeCapability) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging, TargetPath: target,
		VolumeCapability: capability, VolumeContext: v.GetVolumeContext()}
}
