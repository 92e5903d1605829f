package node

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/mount"
)

// TestUnmountIgnoresOtherMounts: what is mounted at the path is unmounted only if it is the volume.
func TestUnmountIgnoresOtherMounts(t *testing.T) {
	for _, test := range []struct {
		what, handle string
		mount        *mount.Entry
		kind         lvm.Kind
	}{
		{"another volume", testID.String(), fsMount(otherDevice, false), lvm.KindConflict},
		{"a tmpfs", testID.String(), &mount.Entry{Device: 45, FSType: "tmpfs", Source: "tmpfs"}, lvm.KindConflict},
		{"our mount, under another volume's handle", testVG + "/pvc-2", fsMount(ourDevice, false), lvm.KindConflict},
		{"our mount, under no volume's handle", "garbage", fsMount(ourDevice, false), lvm.KindNotFound},
	} {
		f := newFake()
		f.mounts["/target"], f.kinds["/target"] = test.mount, mount.PathEmptyDir
		s := f.server()
		_, unpublish := s.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: test.handle, TargetPath: "/target"})
		_, unstage := s.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: test.handle, StagingTargetPath: "/target"})
		for call, err := range map[string]error{"unpublish": unpublish, "unstage": unstage} {
			if err == nil || lvm.KindOf(err) != test.kind {
				t.Errorf("%s: %s: %v", test.what, call, err)
			}
		}
		f.expect(t)
	}
	f := newFake() // a path where nothing is
	for _, handle := range []string{"garbage", testVG + "/gone"} {
		_, unpublish := f.server().NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: handle, TargetPath: "/target"})
		_, unstage := f.server().NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: handle, StagingTargetPath: "/staging"})
		must(t, unpublish)
		must(t, unstage)
	}
	f.expect(t)
}

// A mount of another volume on top of ours hides it: nothing of either is unmounted, nor is the volume below.
func TestUnmountStopsAtOtherVolume(t *testing.T) {
	f := newFake()
	f.mounts["/target"], f.kinds["/target"] = fsMount(ourDevice, false), mount.PathEmptyDir
	f.during = func(call string) {
		if call == "unmount /target" {
			f.mounts["/target"] = fsMount(otherDevice, false)
			f.fail = "unmount" // the fake would take it away
		}
	}
	if err := f.unpublish(t); err == nil {
		t.Error("it succeeded")
	}
	f.fail, f.during = "", nil
	f.did = nil
	if err := f.unpublish(t); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("got %v", err)
	}
	f.expect(t)
}

// TestReadOnlyDevices: a raw device is read-only for all pods of a node or for none, and takes writes again when the last
// pod that only reads has ended.
func TestReadOnlyDevices(t *testing.T) {
	readOnly := func(r *csi.NodePublishVolumeRequest) { rawBlock(r); r.Readonly = true }
	second := func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "/second" }
	f := newFake()
	must(t, f.publish(t, readOnly))
	f.expect(t, "set /dev/dm-3 read-only", "create /target", "bind /dev/dm-3 /target read-only")
	if err := f.publish(t, rawBlock, second); lvm.KindOf(err) != lvm.KindInUse || !strings.Contains(err.Error(), "/target") {
		t.Errorf("a pod that writes beside one that reads: %v", err)
	}
	f.expect(t)
	must(t, f.publish(t, readOnly, second))
	f.expect(t, "create /second", "bind /dev/dm-3 /second read-only")
	must(t, f.unpublish(t))
	f.expect(t, "unmount /target", "remove /target")
	unpublish := func() error {
		_, err := f.server().NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: testID.String(), TargetPath: "/second"})
		return err
	}
	f.fail = "unmount" // a pod has it open
	if err := unpublish(); err == nil || !f.readOnly {
		t.Errorf("read-only %v, %v", f.readOnly, err)
	}
	f.expect(t, "set /second writable", "unmount /second", "set /second read-only")
	f.fail = "set" // its disk is gone: the pod ends all the same
	must(t, unpublish())
	f.fail, f.did, f.readOnly = "", nil, true
	must(t, f.publish(t, rawBlock)) // what was not taken back then is taken back now
	f.expect(t, "set /dev/dm-3 writable", "create /target", "bind /dev/dm-3 /target writable")
	if err := f.publish(t, readOnly, second); lvm.KindOf(err) != lvm.KindInUse {
		t.Errorf("a pod that reads beside one that writes: %v", err)
	}
}

// TestReadOnlyDeviceIsNotMadeWritableBesideAPublication: while the last pod that reads a raw device ends, another publication must not
// find the device read-only and rely on it.
func TestReadOnlyDeviceIsNotMadeWritableBesideAPublication(t *testing.T) {
	readOnly := func(r *csi.NodePublishVolumeRequest) { rawBlock(r); r.Readonly = true }
	second := func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "/second" }
	f := newFake()
	s := f.server()
	publish := func(change ...func(*csi.NodePublishVolumeRequest)) error {
		_, err := s.NodePublishVolume(t.Context(), request(change...))
		return err
	}
	must(t, publish(readOnly))
	var beside error
	for _, moment := range []string{"set /target writable", "unmount /target"} {
		f.during = func(call string) {
			if call == moment {
				f.during = nil
				beside = publish(readOnly, second)
			}
		}
		_, err := s.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: testID.String(), TargetPath: "/target"})
		must(t, err)
		if lvm.KindOf(beside) != lvm.KindBusy {
			t.Errorf("at %q: a publication beside it: %v", moment, beside)
		}
		must(t, publish(readOnly, second)) // the kubelet retries
		if !f.readOnly {
			t.Errorf("at %q: the device is writable under a read-only publication", moment)
		}
		must(t, publish(readOnly))
		_, err = s.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: testID.String(), TargetPath: "/second"})
		must(t, err)
	}
	f.during = func(call string) { // a pod that writes, beside the first one that reads
		if strings.HasPrefix(call, "bind") {
			f.during = nil
			beside = publish(rawBlock, second)
		}
	}
	_, err := s.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: testID.String(), TargetPath: "/target"})
	must(t, err)
	must(t, publish(readOnly))
	if lvm.KindOf(beside) != lvm.KindBusy || !f.readOnly {
		t.Errorf("a pod that writes, beside one that begins to read: %v; the device is read-only: %t", beside, f.readOnly)
	}
}

// TestDeviceIsOpenUntilMount: from its check to the mount, the volume's device is open; one that became another volume's between
// is not touched.
func TestDeviceIsOpenUntilMount(t *testing.T) {
	for what, call := range map[string]func(f *fake) error{
		"stage":            func(f *fake) error { return f.stage(t) },
		"publish a device": func(f *fake) error { return f.publish(t, rawBlock) },
	} {
		f := newFake()
		f.moved = true
		if err := call(f); lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), "/dev/dm-3") {
			t.Errorf("%s: %v", what, err)
		}
		if len(f.did) > 0 && f.did[0] != "activate" || len(f.did) > 1 || f.held != 0 {
			t.Errorf("%s: it did %q, and holds %d", what, f.did, f.held)
		}
		f.moved, f.did = false, nil
		f.during = func(call string) {
			if call != "activate" && !strings.HasPrefix(call, "remove") && f.held != 1 {
				t.Errorf("%s: at %q the device is held %d times", what, call, f.held)
			}
		}
		must(t, call(f))
		if f.held != 0 {
			t.Errorf("%s: the device stays open", what)
		}
	}
}

// TestUnfinishedFileSystems: what a mkfs left that was cut short is made again, and the mark of one that ended goes before
// the file system is used.
func TestUnfinishedFileSystems(t *testing.T) {
	f := newFake()
	f.content = filesystem.Content{Unfinished: "xfs"}
	must(t, f.stage(t, fsType("xfs")))
	f.expect(t, "activate", "format xfs /dev/dm-3 (clear)", "create /staging", "mount /dev/dm-3 /staging xfs ")
	f = newFake()
	f.content = filesystem.Content{Type: "ext4", Marked: true}
	must(t, f.stage(t))
	f.expect(t, "activate", "remove mark /dev/dm-3 uuid", "check ext4 /dev/dm-3", "create /staging", "mount /dev/dm-3 /staging ext4 errors=remount-ro")
	f = newFake()
	f.content, f.fail = filesystem.Content{Type: "ext4", Marked: true}, "remove mark"
	if err := f.stage(t); err == nil {
		t.Error("mounted with the mark")
	}
	f.expect(t, "activate", "remove mark /dev/dm-3 uuid")
}

// TestMkfsOptionsAreReadForAFormat: options that are not allowed any more do not prevent the use of an existing file system.
func TestMkfsOptionsAreReadForAFormat(t *testing.T) {
	old := attribute(api.AttributeMkfsOptions, "-O sparse_super2")
	f := newFake()
	if err := f.stage(t, old); lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), "sparse_super2") {
		t.Errorf("got %v", err)
	}
	f.expect(t, "activate")
	f.content = filesystem.Content{Type: "ext4"}
	must(t, f.stage(t, old))
}

// TestRestage: a volume that is staged in another way than it is asked for.
func TestRestage(t *testing.T) {
	f := newFake()
	must(t, f.stage(t))
	f.did = nil
	for what, change := range map[string]func(*csi.NodePublishVolumeRequest){"another file system": fsType("xfs"), "read-only": fsType("", "ro")} {
		if err := f.stage(t, change); lvm.KindOf(err) != lvm.KindExists {
			t.Errorf("%s: %v", what, err)
		}
	}
	f.expect(t, "activate", "activate")
	must(t, f.stage(t))
}

// TestPathsThatTheKernelRefuses are refused before anything is made.
func TestPathsThatTheKernelRefuses(t *testing.T) {
	for what, path := range map[string]string{
		"too long":                         strings.Repeat("/0123456", 512),
		"a name too long":                  "/a/" + strings.Repeat("n", 256) + "/b",
		"a NUL byte":                       "/a\x00b",
		"nested, and then a name too long": strings.Repeat("/d", 500) + "/" + strings.Repeat("n", 256),
	} {
		f := newFake()
		s := f.server()
		target := func(r *csi.NodePublishVolumeRequest) { r.TargetPath, r.StagingTargetPath = path, path }
		_, stage := s.NodeStageVolume(t.Context(), stageOf(request(target)))
		_, publish := s.NodePublishVolume(t.Context(), request(target))
		_, unpublish := s.NodeUnpublishVolume(t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: testID.String(), TargetPath: path})
		_, unstage := s.NodeUnstageVolume(t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: testID.String(), StagingTargetPath: path})
		for call, err := range map[string]error{"stage": stage, "publish": publish, "unpublish": unpublish, "unstage": unstage} {
			if lvm.KindOf(err) != lvm.KindInvalid || len(err.Error()) > 500 {
				t.Errorf("%s: %s: %v", what, call, err)
			}
		}
		f.expect(t)
	}
	if _, err := parsePath("x", strings.Repeat("/"+strings.Repeat("n", 255), 15)); err != nil {
		t.Errorf("a path that the kernel takes: %v", err)
	}
}

// TestFailedCallThatLeavesAMount: after any other kind than lvm.KindBusy the kubelet takes the volume for unmounted and never unmounts it, so
// that its claim could not be deleted.
func TestFailedCallThatLeavesAMount(t *testing.T) {
	for name, c := range map[string]struct {
		mounted mount.DeviceNumber // at /staging and /target
		want    lvm.Kind
	}{
		"not mounted":            {0, lvm.KindInternal},
		"another volume's mount": {otherDevice, lvm.KindInternal},
		"mounted before":         {ourDevice, lvm.KindBusy},
	} {
		for call, do := range map[string]func(*fake) error{
			"stage":   func(f *fake) error { return f.stage(t) },
			"publish": func(f *fake) error { return f.publish(t) },
		} {
			f := newFake()
			f.fail, f.active = "activate", false
			if c.mounted != 0 {
				f.mounts["/staging"], f.mounts["/target"] = fsMount(c.mounted, false), fsMount(c.mounted, false)
			}
			if err := do(f); lvm.KindOf(err) != c.want || err == nil || err.Error() != "activate fails" {
				t.Errorf("%s, %s: %v of kind %v, want %v", name, call, err, lvm.KindOf(err), c.want)
			}
		}
	}
}
