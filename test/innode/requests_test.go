//go:build innode

package innode

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
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

func thinRequest(name string, size int64, change ...func(*csi.CreateVolumeRequest)) *csi.CreateVolumeRequest {
	r := createRequest(name, size, change...)
	r.Parameters = map[string]string{"volumeGroup": "vg-a", "layout": "thin", "overprovisionRatio": "4"}
	return r
}

// copyRequest asks for a thin copy of a snapshot, or of a volume.
func copyRequest(name string, size int64, snapshot, volume string, change ...func(*csi.CreateVolumeRequest)) *csi.CreateVolumeRequest {
	r := thinRequest(name, size)
	if snapshot != "" {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}}}
	} else {
		r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: volume}}}
	}
	for _, f := range change {
		f(r)
	}
	return r
}

// snapshot takes a snapshot, which is deleted when the test ends.
func (c client) snapshot(t *testing.T, name string, v *csi.Volume) *csi.Snapshot {
	t.Helper()
	reply, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: v.GetVolumeId()})
	must(t, err)
	t.Cleanup(func() {
		if _, err := c.DeleteSnapshot(background, &csi.DeleteSnapshotRequest{SnapshotId: reply.GetSnapshot().GetSnapshotId()}); err != nil {
			t.Error(err)
		}
	})
	return reply.GetSnapshot()
}

func (c client) expand(t *testing.T, v *csi.Volume, size int64) error {
	_, err := c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: size},
	})
	return err
}

func (c client) expandNode(t *testing.T, v *csi.Volume, path string) error {
	_, err := c.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: v.GetVolumeId(), VolumePath: path})
	return err
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
		must(t, err)
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
	for deadline := time.Now().Add(wait.Limit(2 * time.Minute)); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		left := lvNames(t)
		if !slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(left, filepath.Base(id)) }) {
			return
		}
	}
	t.Errorf("some of %v are still there long after their deletion", ids)
}

// mounted stages and publishes a volume; that is undone when the test ends.
func (c client) mounted(t *testing.T, v *csi.Volume, capability *csi.VolumeCapability) (staging, target string) {
	t.Helper()
	staging, target = c.mountedOnce(t, v, capability)
	t.Cleanup(func() { c.unmount(t, v, staging, target) })
	return staging, target
}

// mountedOnce stages and publishes a volume, which the caller unmounts.
func (c client) mountedOnce(t *testing.T, v *csi.Volume, capability *csi.VolumeCapability) (staging, target string) {
	t.Helper()
	dir := t.TempDir()
	staging, target = filepath.Join(dir, "staging"), filepath.Join(dir, "target")
	must(t, os.Mkdir(staging, 0o750))
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

// with sets one parameter of the class.
func with(key, value string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.Parameters[key] = value }
}

var must = check.Must
