//go:build innode

package innode

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// lvmProcesses runs one call and returns the LVM processes that it started, a command line each.
func lvmProcesses(t *testing.T, call func() error) []string {
	t.Helper()
	if err := os.WriteFile(lvmLog, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(lvmLog)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[:strings.Count(string(text), "\n")]
}

// The promise of docs/design.md: what each call may cost in LVM processes.
func TestLVMProcessesPerCall(t *testing.T) {
	c := connect(t)
	dir := t.TempDir()
	staging, target := dir+"/staging", dir+"/target"
	if err := os.Mkdir(staging, 0o750); err != nil {
		t.Fatal(err)
	}
	var v *csi.Volume
	create := func() error {
		reply, err := c.CreateVolume(t.Context(), createRequest("counted", 64*mebibyte))
		v = reply.GetVolume()
		return err
	}
	capability := mountCapability("ext4")
	for _, step := range []struct {
		call string
		most int
		run  func() error
	}{
		{"GetCapacity", 0, func() error {
			_, err := c.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"volumeGroup": "@fast"}})
			return err
		}},
		{"CreateVolume", 2, create},
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
			eventually(t, 30*time.Second, "the volume is gone", func() bool { return len(volumes(t)) == 0 })
			return err
		}},
		{"DeleteVolume again", 0, func() error {
			_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
			return err
		}},
	} {
		started := lvmProcesses(t, step.run)
		t.Logf("%-42s %d LVM processes (at most %d)", step.call, len(started), step.most)
		if len(started) > step.most {
			t.Errorf("%s started %d LVM processes, at most %d are allowed:\n%s", step.call, len(started), step.most, strings.Join(started, "\n"))
		}
	}
}

// The counter itself is checked: a call that is known to run LVM must be seen.
func TestTheCounterCounts(t *testing.T) {
	started := lvmProcesses(t, func() error { return command("vgs", "-qq") })
	if len(started) != 1 || !strings.HasPrefix(started[0], "vgs") {
		t.Errorf("one vgs was counted as %q", started)
	}
}
