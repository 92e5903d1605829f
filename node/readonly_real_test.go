//go:build realfs

package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/mount"
)

// copies are loop devices, some of which are read-only copies.
type copies struct {
	loops
	access map[string]lvm.Access
}

func (c copies) ActivateAs(ctx context.Context, id lvm.ID, _ string, _ lvm.Encryption) (lvm.Volume, string, error) {
	return c.activateAs(ctx, id, c)
}

func (c copies) Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error) {
	v, err := c.loops.Lookup(ctx, id)
	if v.Access = c.access[id.LV]; v.Access.ReadOnly() {
		v.Source = lvm.ID{VG: vgUUID, LV: "snap-1"}
	}
	return v, err
}

func (c copies) BeginReplay(_ context.Context, id lvm.ID, _ string) error {
	c.access[id.LV] = lvm.AccessReplaying
	return nil
}

// SetReplayed does what LVM does: the device takes no writes from then on. It refuses a device that is in use.
func (c copies) SetReplayed(ctx context.Context, id lvm.ID, _ string) error {
	f, err := os.OpenFile(c.loops[id.LV], os.O_RDONLY|syscall.O_EXCL, 0)
	if err != nil {
		return fmt.Errorf("the device is in use: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	c.access[id.LV] = lvm.AccessReadOnly
	return exec.CommandContext(ctx, "blockdev", "--setro", c.loops[id.LV]).Run()
}

func newCopies(t *testing.T) (*bench, copies) {
	t.Helper()
	devices := copies{loops{}, map[string]lvm.Access{}}
	return &bench{New(Config{NodeName: "n", Devices: devices}), t, devices.loops, map[string]lvm.Bytes{}, t.TempDir()}, devices
}

// copyStates are how the file systems of sources are when they are copied.
var copyStates = map[string]struct {
	before, after func(b *bench, mounted string)
}{
	"unmounted": {func(b *bench, mounted string) { b.run("umount", mounted) }, func(*bench, string) {}},
	"frozen": {func(b *bench, mounted string) { b.run("fsfreeze", "--freeze", mounted) }, // as device-mapper does for a snapshot
		func(b *bench, mounted string) { b.run("fsfreeze", "--unfreeze", mounted) }},
	"cut off": {func(*bench, string) {}, func(*bench, string) {}}, // a power cut
}

// TestReadOnlyCopies: of a source that was unmounted, frozen, or cut off, each file that was flushed is in the read-only copy, beside its mounted
// source, for several pods; after the replay nothing writes to it.
func TestReadOnlyCopies(t *testing.T) {
	for _, fsType := range filesystem.Types {
		for state := range copyStates {
			t.Run(fsType+" "+state, func(t *testing.T) { testReadOnlyCopy(t, fsType, state) })
		}
	}
}

func testReadOnlyCopy(t *testing.T, fsType, state string) {
	b, devices := newCopies(t)
	b.makeSource(fsType, state, "copy.img")
	device := b.attach("copy", b.path("copy.img"))
	devices.access["copy"] = lvm.AccessReplay
	t.Cleanup(func() { b.run("blockdev", "--setrw", device) }) // a later loop device of that number would keep the flag
	if state == "cut off" && !needsJournal(b, device, fsType) {
		t.Error("the journal of the copy is empty: this proves nothing")
	}
	staging, one, two := b.path("staging"), b.path("pods/one"), b.path("pods/two")
	for range 2 {
		b.must(b.stageReader("copy", fsType, staging))
		b.must(b.publishReader("copy", fsType, staging, one))
		b.must(b.publishReader("copy", fsType, staging, two))
	}
	for _, pod := range []string{one, two} {
		b.expectKept(pod, "flushed")
		if err := os.WriteFile(filepath.Join(pod, "refused"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
			t.Errorf("a pod writes: %v", err)
		}
	}
	if options := b.run("findmnt", "-n", "-o", "OPTIONS", staging); !strings.HasPrefix(options, "ro,") || strings.Contains(options, "norecovery") || strings.Contains(options, "nologreplay") {
		t.Errorf("it is mounted with %s", options)
	}
	if err := b.stage("copy", fsType, staging); lvm.KindOf(err) != lvm.KindInvalid {
		t.Errorf("a stage for writing: %v", err)
	}
	b.must(b.unpublish("copy", one))
	b.must(b.unpublish("copy", two))
	b.must(b.unstage("copy", staging))
	before := digest(b, device)
	b.must(b.stageReader("copy", fsType, staging))
	b.expectKept(staging, "flushed")
	b.must(b.unstage("copy", staging))
	if digest(b, device) != before {
		t.Error("the second stage wrote to the device")
	}
}

// failing is a machine whose writable mounts of an ext4 have an error at once, as that of a bad block.
type failing struct {
	mount.Machine
	fail bool
}

func (f *failing) Mount(device, target, fsType string, options []string) error {
	err := f.Machine.Mount(device, target, fsType, options)
	if err != nil || !f.fail || !slices.Contains(options, "rw") {
		return err
	}
	return os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error"), []byte("a bad block"), 0o200)
}

// TestReplayThatFails: a replay after which the file system has an error is not recorded, and is repeated.
func TestReplayThatFails(t *testing.T) {
	b, devices := newCopies(t)
	mounts := &failing{mount.New(), true}
	b.mounts = mounts
	b.makeSource("ext4", "cut off", "copy.img")
	device := b.attach("copy", b.path("copy.img"))
	devices.access["copy"] = lvm.AccessReplay
	t.Cleanup(func() { b.run("blockdev", "--setrw", device) })
	staging := b.path("staging")
	for range 2 {
		err := b.stageReader("copy", "ext4", staging)
		if err == nil || !strings.Contains(err.Error(), "is not replayed") || devices.access["copy"] != lvm.AccessReplaying {
			t.Errorf("a file system with an error: %v, recorded %q", err, devices.access["copy"])
		}
		if info, err := b.mounts.Inspect(staging); err != nil || info.Mount != nil {
			t.Errorf("it is mounted: %+v, %v", info.Mount, err)
		}
	}
	mounts.fail = false
	b.must(b.stageReader("copy", "ext4", staging))
	if devices.access["copy"] != lvm.AccessReadOnly {
		t.Errorf("the next stage records %q", devices.access["copy"])
	}
	b.expectKept(staging, "flushed")
	b.must(b.unstage("copy", staging))
}

// makeSource makes a file system, and copies its image in that state; the source is mounted afterwards.
func (b *bench) makeSource(fsType, state, image string) {
	b.t.Helper()
	device := b.volume("origin", 320)
	b.must(b.tools.Format(b.t.Context(), filesystem.Formatting{Device: device, Size: 320 * megabytes, Type: fsType}))
	mounted := b.path("origin")
	b.must(os.Mkdir(mounted, 0o700))
	b.run("mount", "-t", fsType, device, mounted)
	b.run("sync", "-f", mounted)
	f, err := os.Create(filepath.Join(mounted, "kept"))
	b.must(err)
	_, err = f.WriteString("flushed")
	b.must(errors.Join(err, f.Sync(), f.Close()))
	copyStates[state].before(b, mounted)
	b.run("cp", "--sparse=always", b.path("origin.img"), b.path(image))
	copyStates[state].after(b, mounted)
	if state == "unmounted" {
		b.run("mount", "-t", fsType, device, mounted)
	}
	b.t.Cleanup(func() { b.run("umount", mounted) })
}

// needsJournal reports whether the file system on an unmounted device must replay its journal.
func needsJournal(b *bench, device, fsType string) bool {
	switch fsType {
	case "ext4":
		return strings.Contains(b.run("dumpe2fs", "-h", device), "needs_recovery")
	case "btrfs":
		super, err := b.block.ReadAt(device, 64<<10, 4096)
		b.must(err)
		return binary.LittleEndian.Uint64(super[96:]) != 0 // log_root
	}
	b.run("blockdev", "--setro", device)
	defer b.run("blockdev", "--setrw", device)
	out, err := exec.CommandContext(b.t.Context(), "mount", "-t", fsType, "-o", "ro,nouuid", device, "/mnt").CombinedOutput()
	if err == nil {
		b.run("umount", "/mnt")
	}
	b.t.Logf("xfs without a replay: %v, %s", err, out)
	return err != nil
}

func digest(b *bench, device string) (sum [sha256.Size]byte) {
	b.t.Helper()
	f, err := os.Open(device)
	b.must(err)
	defer func() { b.must(f.Close()) }()
	h := sha256.New()
	_, err = io.Copy(h, f)
	b.must(err)
	return [sha256.Size]byte(h.Sum(nil))
}

func (b *bench) stageReader(name, fsType, path string) error {
	_, err := b.NodeStageVolume(b.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: vgUUID + "/" + name, VolumeContext: map[string]string{api.AttributeUUID: "uuid-of-" + name, api.AttributeSource: "x/snap-1"},
		StagingTargetPath: path, VolumeCapability: capability(fsType, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY),
	})
	return err
}

func (b *bench) publishReader(name, fsType, staging, target string) error {
	_, err := b.NodePublishVolume(b.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: vgUUID + "/" + name, VolumeContext: map[string]string{api.AttributeUUID: "uuid-of-" + name, api.AttributeSource: "x/snap-1"},
		StagingTargetPath: staging, TargetPath: target, VolumeCapability: capability(fsType, csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY),
	})
	return err
}
