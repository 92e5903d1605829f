package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/mount"
)

var manyReaders = mode(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)

// newCopy is a fake with a read-only copy whose journal was not replayed.
func newCopy(fsType string) *fake {
	f := newFake()
	f.content.Type = fsType
	f.volume = lvm.Volume{Source: lvm.ID{VG: testID.VG, LV: "snap-1"}, Access: lvm.AccessReplay}
	return f
}

func (f *fake) stageCopy(t *testing.T, fsName string) error {
	t.Helper()
	return f.stage(t, fsType(fsName), manyReaders, attribute(api.AttributeSource, "vg/snap-1"))
}

// TestReadOnlyCopy: the driver mounts it for writing once, and then only read-only.
func TestReadOnlyCopy(t *testing.T) {
	for name, want := range map[string][2]string{
		"ext4":  {"mount /dev/dm-3 /staging ext4 errors=remount-ro,rw", "mount /dev/dm-3 /staging ext4 errors=remount-ro,ro"},
		"xfs":   {"mount /dev/dm-3 /staging xfs rw,nouuid", "mount /dev/dm-3 /staging xfs ro,nouuid"},
		"btrfs": {"mount /dev/dm-3 /staging btrfs rw", "mount /dev/dm-3 /staging btrfs ro"},
	} {
		f := newCopy(name)
		must(t, f.stageCopy(t, name))
		check := []string{"check " + name + " /dev/dm-3"}
		if name == "btrfs" {
			check = append([]string{"set UUID /dev/dm-3"}, check...)
		}
		f.expect(t, slices.Concat([]string{"activate", "begin replay"}, check, []string{"create /staging", want[0], "sync /staging", "unmount /staging", "set replayed", want[1]})...)
		must(t, f.stageCopy(t, name))
		f.expect(t, "activate")
		must(t, f.publish(t, fsType(name), manyReaders))
		f.expect(t, "create /target", "bind /staging /target read-only")
		must(t, f.unpublish(t))
		must(t, f.unstage(t))
		f.did = nil
		f.lags = true
		must(t, f.stageCopy(t, name))
		f.expect(t, "activate", want[1])
	}
}

// TestReadOnlyCopyWithOptions: the class's own ro does not prevent the replay, and its rw does not make the copy writable.
func TestReadOnlyCopyWithOptions(t *testing.T) {
	for _, options := range []string{"ro", "rw", "noatime,ro"} {
		f := newCopy("xfs")
		f.kinds["/staging"] = mount.PathEmptyDir
		must(t, f.stage(t, fsType("xfs", options), manyReaders))
		var mounts []string
		for _, call := range f.did {
			if strings.HasPrefix(call, "mount ") {
				mounts = append(mounts, call[strings.LastIndex(call, " ")+1:])
			}
		}
		if !slices.Equal(mounts, []string{options + ",rw,nouuid", options + ",ro,nouuid"}) && !slices.Equal(mounts, []string{options + ",rw", options + ",ro"}) {
			t.Errorf("%s: mounted with %q", options, mounts)
		}
	}
}

// TestReadOnlyCopyAfterInterruption: whatever step fails, the next stage replays again, until that is recorded.
func TestReadOnlyCopyAfterInterruption(t *testing.T) {
	for _, failing := range []string{"begin replay", "check", "create", "mount", "sync", "unmount", "set replayed"} {
		f := newCopy("ext4")
		left := lvm.AccessReplaying
		if failing == "begin replay" {
			left = lvm.AccessReplay
		}
		f.fail = failing
		if err := f.stageCopy(t, "ext4"); err == nil || f.volume.Access != left || f.held != 0 {
			t.Errorf("%s fails: %v, %q, held %d times", failing, err, f.volume.Access, f.held)
		}
		f.fail, f.did = "", nil
		must(t, f.stageCopy(t, "ext4"))
		if m := f.mounts["/staging"]; m == nil || !m.ReadOnly || f.volume.Access != lvm.AccessReadOnly {
			t.Errorf("after %s failed: mounted %+v, %q", failing, m, f.volume.Access)
		}
		if !slices.Contains(f.did, "set replayed") || !slices.Contains(f.did, "mount /dev/dm-3 /staging ext4 errors=remount-ro,rw") {
			t.Errorf("after %s failed it did only %q", failing, f.did)
		}
	}
}

// TestReadOnlyCopyInUnreadableGroup: pods of a copy start although nothing can be read of it but that its device takes no writes.
func TestReadOnlyCopyInUnreadableGroup(t *testing.T) {
	for readOnly, want := range map[bool][]string{
		true:  {"activate", "create /staging", "mount /dev/dm-3 /staging ext4 errors=remount-ro,ro"},
		false: {"activate", "check ext4 /dev/dm-3", "create /staging", "mount /dev/dm-3 /staging ext4 errors=remount-ro"},
	} {
		f := newCopy("ext4")
		f.volume, f.readOnly = lvm.Volume{}, readOnly
		must(t, f.stageCopy(t, "ext4"))
		f.expect(t, want...)
	}
}

// TestReadOnlyCopyThatBecomesReadOnly: a file system that the kernel makes read-only during the replay may not have replayed all of its journal.
func TestReadOnlyCopyThatBecomesReadOnly(t *testing.T) {
	for what, fail := range map[string]func(f *fake){
		"of the mount itself":    func(f *fake) { f.mounts["/staging"].ReadOnly = true },
		"of the file system":     func(f *fake) { f.failed = []mount.DeviceNumber{ourDevice} },
		"of another file system": func(f *fake) { f.failed = []mount.DeviceNumber{otherDevice} },
	} {
		f := newCopy("ext4")
		f.during = func(call string) {
			if call == "sync /staging" {
				fail(f)
			}
		}
		err := f.stageCopy(t, "ext4")
		if what == "of another file system" {
			must(t, err)
			continue
		}
		if lvm.KindOf(err) != lvm.KindInternal || !strings.Contains(err.Error(), "kernel log") || f.volume.Access != lvm.AccessReplaying || f.mounts["/staging"] != nil || f.held != 0 {
			t.Errorf("%s: %v; %q, mounted %v, held %d times", what, err, f.volume.Access, f.mounts["/staging"], f.held)
		}
		f.during, f.failed = nil, nil
		must(t, f.stageCopy(t, "ext4"))
		if f.volume.Access != lvm.AccessReadOnly {
			t.Errorf("%s: the retry leaves %q", what, f.volume.Access)
		}
	}
}

// TestReadOnlyCopyIsNeverWritable: for a PersistentVolume for writing, and as a raw device, too.
func TestReadOnlyCopyIsNeverWritable(t *testing.T) {
	for _, access := range []lvm.Access{lvm.AccessReplay, lvm.AccessReplaying, lvm.AccessReplayingFull, lvm.AccessReadOnly} {
		f := newCopy("ext4")
		f.volume.Access = access
		if err := f.stage(t); lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), "ReadOnlyMany") {
			t.Errorf("%s: stage for writing: %v", access, err)
		}
		if err := f.publish(t, rawBlock); lvm.KindOf(err) != lvm.KindInvalid {
			t.Errorf("%s: publish the device for writing: %v", access, err)
		}
		f.expect(t, "activate")
		must(t, f.publish(t, rawBlock, manyReaders))
	}
}

// TestEncryptedReadOnlyCopy: the mapping for the replay is writable and closed before the record, the next one is read-only.
func TestEncryptedReadOnlyCopy(t *testing.T) {
	f := newCopy("xfs")
	f.luks.class = lvm.Class{Layout: lvm.LayoutThin, Encryption: lvm.EncryptionLUKS2}
	f.content, f.contents = filesystem.Content{Others: []string{"crypto_LUKS"}}, map[string]filesystem.Content{mappingPath: {Type: "xfs"}}
	f.luks.open = true // no format: it has a header
	stage := func() error {
		return f.stageEncrypted(t, secret, fsType("xfs"), manyReaders, attribute(api.AttributeSource, "vg/snap-1"))
	}
	var readOnly []bool
	f.during = func(call string) {
		if strings.HasPrefix(call, "open") {
			readOnly = append(readOnly, f.luks.last.ReadOnly)
		}
		f.luks.open = f.luks.open || call == "set replayed" // as above
	}
	must(t, stage())
	f.expect(t, "activate", "begin replay", "open /dev/dm-3", "check xfs /dev/dm-7", "create /staging", "mount /dev/dm-7 /staging xfs rw,nouuid", "sync /staging", "unmount /staging",
		"close", "set replayed", "open /dev/dm-3", "mount /dev/dm-7 /staging xfs ro,nouuid")
	if !slices.Equal(readOnly, []bool{false, true}) || f.held != 0 {
		t.Errorf("opened read-only: %v; held %d times", readOnly, f.held)
	}
	f.volume.Access = lvm.AccessReadOnly // a raw one
	must(t, f.stageEncrypted(t, secret, rawBlock, manyReaders))
	if !f.luks.last.ReadOnly {
		t.Error("a raw copy is opened for writing")
	}
}
