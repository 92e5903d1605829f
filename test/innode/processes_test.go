//go:build innode

package innode

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// processes runs one call and returns the processes that the driver started meanwhile, a command line each: those of LVM, and those of
// other tools. udev also starts some at any time after a write to a loop device.
func processes(t *testing.T, call func() error) (ofLVM, others []string) {
	t.Helper()
	must(t, os.WriteFile(lvmLog, nil, 0o600))
	must(t, call())
	text, err := os.ReadFile(lvmLog)
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if of, command, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); of == strconv.Itoa(driverPID) {
			if name, _, _ := strings.Cut(command, " "); slices.Contains(tools, name) {
				others = append(others, name)
			} else {
				ofLVM = append(ofLVM, command)
			}
		}
	}
	return ofLVM, others
}

// toolsOf are the other tools that calls start on volumes without encryption, in their order; all other calls start none.
var toolsOf = map[string][]string{
	"NodeStageVolume":  {"blkid", "wipefs", "mkfs.ext4"},
	"NodeExpandVolume": {"resize2fs"},
}

// call is one call, and how many LVM processes it may start.
type call struct {
	name string
	most int
	run  func() error
}

func (c call) check(t *testing.T) {
	t.Helper()
	started, others := processes(t, c.run)
	t.Logf("%-42s %d LVM processes (at most %d)", c.name, len(started), c.most)
	if len(started) > c.most {
		t.Errorf("%s started %d LVM processes, at most %d are allowed:\n%s", c.name, len(started), c.most, strings.Join(started, "\n"))
	}
	if !slices.Equal(others, toolsOf[c.name]) {
		t.Errorf("%s started the tools %q, want %q", c.name, others, toolsOf[c.name])
	}
}

// settled waits until no volume is marked as being created any more, which the driver commits a moment after the reply.
func settled(t *testing.T) {
	t.Helper()
	eventually(t, 30*time.Second, "every volume is marked as ready", func() bool {
		return output(t, realLVM, "lvs", "--noheadings", "-o", "lv_name", "-S", "lv_tags={nodelvm.state=creating}") == ""
	})
}

// The promise of docs/explanation/design.md: what each call may cost in LVM processes. Every ten minutes the driver holds what it reads to
// LVM's report, one process: a driver that is counted has just started.
func TestLVMProcessesPerCall(t *testing.T) {
	renewDriver(t)
	c := connect(t)
	dir := t.TempDir()
	staging, target := dir+"/staging", dir+"/target"
	must(t, os.Mkdir(staging, 0o750))
	var v *csi.Volume
	create := func() error {
		reply, err := c.CreateVolume(t.Context(), createRequest("counted", 64*mebibyte))
		v = reply.GetVolume()
		return err
	}
	var first *csi.Volume
	call{"CreateVolume, the first in its group", 3, func() error { // the group gets the node's tag, once
		defer settled(t)
		reply, err := c.CreateVolume(t.Context(), createRequest("first", 64*mebibyte))
		first = reply.GetVolume()
		return err
	}}.check(t)
	c.remove(t, first.GetVolumeId())
	capability := mountCapability("ext4")
	for _, step := range []call{
		{"GetCapacity", 0, func() error {
			_, err := c.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"volumeGroup": "@fast"}})
			return err
		}},
		{"CreateVolume, and what follows its reply", 2, func() error {
			defer settled(t) // which asks past the counter
			return create()
		}},
		{"CreateVolume again", 0, create},
		{"ListVolumes", 0, func() error {
			_, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
			return err
		}},
		{"NodeStageVolume", 0, func() error {
			_, err := c.NodeStageVolume(t.Context(), stageRequest(v, staging, capability))
			return err
		}},
		{"NodePublishVolume", 0, func() error {
			_, err := c.NodePublishVolume(t.Context(), publishRequest(v, staging, target, capability))
			return err
		}},
		{"NodeGetVolumeStats", 0, func() error {
			_, err := c.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: v.GetVolumeId(), VolumePath: target, StagingTargetPath: staging})
			return err
		}},
		{"ControllerExpandVolume", 1, func() error {
			_, err := c.ControllerExpandVolume(t.Context(), &csi.ControllerExpandVolumeRequest{
				VolumeId: v.GetVolumeId(), CapacityRange: &csi.CapacityRange{RequiredBytes: 96 * mebibyte}, VolumeCapability: capability,
			})
			return err
		}},
		{"ControllerExpandVolume again", 0, func() error { return c.expand(t, v, 96*mebibyte) }},
		{"NodeExpandVolume", 0, func() error { return c.expandNode(t, v, staging) }},
		{"NodeUnpublishVolume", 0, func() error {
			_, err := c.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: target})
			return err
		}},
		{"NodeUnstageVolume", 0, func() error {
			_, err := c.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: staging})
			return err
		}},
		{"DeleteVolume, wipe and removal included", 3, func() error {
			_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
			eventually(t, 2*time.Minute, "the volume is gone", func() bool { return len(volumes(t)) == 0 })
			return err
		}},
		{"DeleteVolume again", 0, func() error {
			_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
			return err
		}},
	} {
		step.check(t)
	}
}

// A raw block volume on extents that the driver has zeroed costs what any other volume costs. On extents whose content is not
// known it is zeroed before it is answered, and so is what it grows by: one process more, and two.
func TestLVMProcessesOfRawVolumes(t *testing.T) {
	renewDriver(t)
	c := connect(t)
	raw := func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{blockCapability()} }
	var v *csi.Volume
	create := func(name string) func() error {
		return func() error {
			defer settled(t)
			v = c.create(t, createRequest(name, 32*mebibyte, raw, with("volumeGroup", "vg-a")))
			return nil
		}
	}
	expand := func() error { return c.expand(t, v, 64*mebibyte) }
	for _, step := range []call{
		{"CreateVolume, raw, on unknown extents", 2, create("counted-unknown")},
		{"ControllerExpandVolume, raw, onto unknown extents", 3, expand},
		{"DeleteVolume, wipe and removal included", 3, func() error {
			_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
			eventually(t, 2*time.Minute, "the volume is gone", func() bool { return len(volumes(t)) == 0 })
			return err
		}},
		{"CreateVolume, raw, on zeroes", 2, create("counted-known")},
		{"ControllerExpandVolume, raw, onto zeroes", 1, expand},
	} {
		step.check(t)
	}
}

// The same of a thin class: snapshots, and copies of them.
func TestLVMProcessesOfThinVolumes(t *testing.T) {
	renewDriver(t)
	c := connect(t)
	v := c.create(t, thinRequest("counted-thin", 64*mebibyte))
	settled(t)
	var snapshot *csi.Snapshot
	take := func() error {
		reply, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "counted", SourceVolumeId: v.GetVolumeId()})
		snapshot = reply.GetSnapshot()
		return err
	}
	for _, step := range []call{
		{"CreateSnapshot", 3, take},
		{"CreateSnapshot again", 0, take},
		{"ListSnapshots", 0, func() error {
			_, err := c.ListSnapshots(t.Context(), &csi.ListSnapshotsRequest{})
			return err
		}},
		{"CreateVolume from a snapshot, larger", 3, func() error {
			c.create(t, copyRequest("counted-copy", 96*mebibyte, snapshot.GetSnapshotId(), ""))
			return nil
		}},
		{"ControllerExpandVolume, thin", 3, func() error { return c.expand(t, v, 96*mebibyte) }},
		{"DeleteSnapshot", 2, func() error {
			_, err := c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot.GetSnapshotId()})
			return err
		}},
	} {
		step.check(t)
	}
}

// The counter itself is checked: a call that is known to run LVM must be seen, and what others run is not the driver's.
func TestProcessCounter(t *testing.T) {
	c := connect(t)
	started, _ := processes(t, func() error {
		c.create(t, createRequest("seen", 8*mebibyte, with("wipe", "none")))
		return command("vgs", "-qq")
	})
	creates := slices.DeleteFunc(slices.Clone(started), func(command string) bool { return !strings.HasPrefix(command, "lvm lvcreate ") })
	if len(creates) != 1 || slices.ContainsFunc(started, func(command string) bool { return strings.HasPrefix(command, "vgs") }) {
		t.Errorf("one lvcreate of the driver's and a vgs of somebody else's were counted as %q", started)
	}
}
