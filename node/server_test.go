package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/mount"
)

func (f *fake) server() *Server {
	return New(Config{NodeName: "n", Devices: f, Encryption: &f.luks, Tools: f, Mounts: f, MountedFileSystems: f, BlockDevices: f})
}

// expect compares what was done since the last time.
func (f *fake) expect(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(f.did, want) {
		t.Errorf("it did\n  %s\nand not\n  %s", strings.Join(f.did, "\n  "), strings.Join(want, "\n  "))
	}
	f.did = nil
}

func (f *fake) stage(t *testing.T, change ...func(*csi.NodePublishVolumeRequest)) error {
	t.Helper()
	_, err := f.server().NodeStageVolume(t.Context(), stageOf(request(change...)))
	return err
}

func (f *fake) publish(t *testing.T, change ...func(*csi.NodePublishVolumeRequest)) error {
	t.Helper()
	_, err := f.server().NodePublishVolume(t.Context(), request(change...))
	return err
}

func (f *fake) unpublish(t *testing.T) error {
	t.Helper()
	_, err := f.server().NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: testID.String(), TargetPath: "/target"})
	return err
}

func (f *fake) unstage(t *testing.T) error {
	t.Helper()
	_, err := f.server().NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: testID.String(), StagingTargetPath: "/staging"})
	return err
}

func TestFileSystemLifecycle(t *testing.T) {
	f := newFake()
	must(t, f.stage(t, fsType("xfs", "noatime")))
	f.expect(t, "activate", "format xfs /dev/dm-3", "create /staging", "mount /dev/dm-3 /staging xfs noatime")
	must(t, f.stage(t, fsType("xfs", "noatime")))
	f.expect(t, "activate")
	must(t, f.publish(t, fsType("xfs")))
	f.expect(t, "create /target", "bind /staging /target writable")
	must(t, f.publish(t, fsType("xfs")))
	f.expect(t)
	must(t, f.unpublish(t))
	f.expect(t, "unmount /target", "remove /target")
	must(t, f.unpublish(t))
	f.expect(t)
	must(t, f.unstage(t))
	f.expect(t, "unmount /staging")
	must(t, f.unstage(t))
	f.expect(t)
	f.content = filesystem.Content{Type: "xfs"}
	must(t, f.stage(t, fsType("xfs")))
	f.expect(t, "activate", "check xfs /dev/dm-3", "mount /dev/dm-3 /staging xfs ")
}

func TestBlockVolumeLifecycle(t *testing.T) {
	f := newFake()
	must(t, f.stage(t, rawBlock))
	f.expect(t, "activate")
	f.active = false // the node has been rebooted meanwhile
	readOnly := func(r *csi.NodePublishVolumeRequest) { rawBlock(r); r.Readonly = true }
	must(t, f.publish(t, readOnly))
	f.expect(t, "activate", "set /dev/dm-3 read-only", "create /target", "bind /dev/dm-3 /target read-only")
	must(t, f.publish(t, readOnly))
	f.expect(t)
	must(t, f.unpublish(t))
	f.expect(t, "set /target writable", "unmount /target", "remove /target")
	must(t, f.unstage(t))
	f.expect(t)
}

// TestStageReadsDisksOnce: each lookup, which an activation has within, reads all disks of the node.
func TestStageReadsDisksOnce(t *testing.T) {
	f := newFake()
	if must(t, f.stage(t)); f.lookups != 1 {
		t.Errorf("NodeStageVolume read the disks %d times", f.lookups)
	}
}

// What a call made goes again when it fails, and the next call succeeds.
func TestFailedStageCanBeRepeated(t *testing.T) {
	for _, test := range []struct {
		fail string
		left []string // what the failing stage does
	}{
		{"activate", []string{"activate"}},
		{"format", []string{"activate", "format ext4 /dev/dm-3"}},
		{"create", []string{"activate", "format ext4 /dev/dm-3", "create /staging"}},
		{"mount", []string{"activate", "format ext4 /dev/dm-3", "create /staging", "mount /dev/dm-3 /staging ext4 errors=remount-ro", "remove /staging"}},
	} {
		f := newFake()
		f.fail = test.fail
		if err := f.stage(t); err == nil || !strings.Contains(err.Error(), test.fail+" fails") {
			t.Errorf("%s: %v", test.fail, err)
		}
		f.expect(t, test.left...)
		f.fail = ""
		must(t, f.stage(t))
	}
}

func TestRefusalsChangeNothing(t *testing.T) {
	f := newFake()
	f.content = filesystem.Content{Others: []string{"swap (other)"}}
	if err := f.stage(t); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("foreign content: %v", err)
	}
	f.expect(t, "activate")
	f.kinds["/target"] = mount.PathNonEmptyDir
	if err := f.unpublish(t); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("unpublish of somebody's files: %v", err)
	}
	f.expect(t)
}

func TestOneOperationAtATime(t *testing.T) {
	f := newFake()
	s := f.server()
	var again, publish, other error
	f.during = func(call string) {
		if !strings.HasPrefix(call, "format") {
			return
		}
		f.during = nil
		_, again = s.NodeStageVolume(t.Context(), stageOf(request()))
		_, publish = s.NodePublishVolume(t.Context(), request())
		_, other = s.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: "other", StagingTargetPath: "/other"})
	}
	if _, err := s.NodeStageVolume(t.Context(), stageOf(request())); err != nil {
		t.Fatal(err)
	}
	if lvm.KindOf(again) != lvm.KindBusy || lvm.KindOf(publish) != lvm.KindBusy || other != nil {
		t.Errorf("while a volume is staged: %v; %v; another volume: %v", again, publish, other)
	}
}

func TestSeveralPodsAtOnce(t *testing.T) {
	var b operationLocks
	one, err := b.lockShared("v")
	must(t, err)
	two, err := b.lockShared("v")
	must(t, err)
	one()
	if _, err := b.lock("v"); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("alone beside one that shares: %v", err)
	}
	two()
	alone, err := b.lock("v")
	must(t, err)
	if _, err := b.lockShared("v"); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("sharing beside one alone: %v", err)
	}
	alone()
	if len(b.held) != 0 {
		t.Errorf("the driver keeps names that no call holds: %v", b.held)
	}
}

func TestNodeGetVolumeStats(t *testing.T) {
	f := newFake()
	f.mounts["/target"] = fsMount(ourDevice, false)
	f.mounts["/other"] = fsMount(otherDevice, false)
	f.kinds["/device"] = mount.PathDevice
	for _, test := range []struct {
		what, handle, path string
		active             bool
		kind               lvm.Kind
		want               int64 // total bytes; 0: an error
	}{
		{"a file system", testID.String(), "/target", true, 0, 100},
		{"a raw device", testID.String(), "/device", true, 0, int64(lvm.GiB)},
		{"nothing there", testID.String(), "/absent", true, lvm.KindNotFound, 0},
		{"another volume there", testID.String(), "/other", true, lvm.KindNotFound, 0},
		{"not active", testID.String(), "/target", false, lvm.KindNotFound, 0},
		{"another node's volume", testVG + "/else", "/target", true, lvm.KindNotFound, 0},
		{"garbage", "garbage", "/target", true, lvm.KindNotFound, 0},
		{"a path that nothing can be mounted at", testID.String(), "some/path", true, lvm.KindNotFound, 0},
		{"no volume", "", "/target", true, lvm.KindInvalid, 0},
		{"no path", testID.String(), "", true, lvm.KindInvalid, 0},
	} {
		t.Run(test.what, func(t *testing.T) {
			f.active = test.active
			reply, err := f.server().NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: test.handle, VolumePath: test.path})
			switch {
			case test.want == 0 && (err == nil || lvm.KindOf(err) != test.kind):
				t.Errorf("got %v, %v", reply, err)
			case test.want != 0 && (err != nil || reply.GetUsage()[0].GetTotal() != test.want):
				t.Errorf("got %v, %v", reply, err)
			}
		})
	}
	f.expect(t)
}

func TestNodeGetInfo(t *testing.T) {
	s := New(Config{NodeName: "node-1", VolumeLimit: 7, Devices: newFake()})
	info, err := s.NodeGetInfo(t.Context(), nil)
	if err != nil || info.GetNodeId() != "node-1" || info.GetMaxVolumesPerNode() != 7 || info.GetAccessibleTopology().GetSegments()[api.TopologyKey] != "node-1" {
		t.Errorf("got %v, %v", info, err)
	}
	can, err := s.NodeGetCapabilities(t.Context(), nil)
	if err != nil || len(can.GetCapabilities()) != 4 {
		t.Errorf("got %v, %v", can, err)
	}
}

var must = check.Must
