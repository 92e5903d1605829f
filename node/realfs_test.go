//go:build realfs

package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

// These tests use real mounts and real file systems on loop devices; only LVM is left out. They need root and the tools,
// and fail where one is missing.

const (
	vgUUID    = "AAAAAA-bbbb-CCCC-dddd-EEEE-ffff-GGGGGG"
	rw        = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	megabytes = 1 << 20
)

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "tests with the tag realfs mount file systems: run them as root")
		os.Exit(1)
	}
	for _, tool := range []string{"losetup", "blkid", "wipefs", "mkfs.ext4", "fsck.ext4", "mkfs.xfs", "mkfs.btrfs", "mkswap", "pvcreate"} {
		if _, err := exec.LookPath(tool); err != nil {
			fmt.Fprintf(os.Stderr, "tests with the tag realfs need %s: apt-get install e2fsprogs xfsprogs btrfs-progs lvm2 util-linux mount\n", tool)
			os.Exit(1)
		}
	}
	_ = exec.CommandContext(context.Background(), "modprobe", "loop").Run() // it may be part of the kernel
	os.Exit(m.Run())
}

// bench is a service over one or more loop devices, and a folder for its paths.
type bench struct {
	*Server
	t       *testing.T
	devices loops
	marks   map[string]lvm.Bytes
	dir     string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	devices, marks := loops{}, map[string]lvm.Bytes{}
	return &bench{New(Config{NodeName: "n", Devices: markedLoops{devices, marks}}), t, devices, marks, t.TempDir()}
}

func (b *bench) run(name string, args ...string) string {
	b.t.Helper()
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// created makes a blank volume of some MiB with the format mark, as the driver creates one.
func (b *bench) created(name string, size int64) string {
	b.t.Helper()
	device := b.volume(name, size)
	b.marks[name] = lvm.FormatMarkOffset(lvm.Bytes(size) * megabytes)
	b.must(b.tools.WriteMark(device, b.mark(name)))
	return device
}

// mark is the format mark of a volume.
func (b *bench) mark(name string) filesystem.Mark {
	return filesystem.Mark{UUID: "uuid-of-" + name, First: b.marks[name]}
}

// isMarked reports whether a volume has its format mark at the place that its tag names, before its end, or at the fixed place.
func (b *bench) isMarked(name string) bool {
	b.t.Helper()
	block, err := b.block.Stat(b.devices[name])
	b.must(err)
	for _, at := range []lvm.Bytes{b.marks[name], lvm.FormatMarkOffset(block.Size), 3 * megabytes} {
		data, err := b.block.ReadAt(b.devices[name], int64(at), lvm.FormatMarkSize)
		b.must(err)
		if bytes.Equal(data, lvm.FormatMark("uuid-of-"+name)) {
			return true
		}
	}
	return false
}

// volume makes a blank volume of some MiB without the tag for a format mark, as an admin creates one; whatever is mounted of
// it goes at the end.
func (b *bench) volume(name string, size int64) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name+".img")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Truncate(path, size*megabytes); err != nil {
		b.t.Fatal(err)
	}
	return b.attach(name, path)
}

// attach makes a volume of an image.
func (b *bench) attach(name, path string) string {
	b.t.Helper()
	device := b.run("losetup", "--find", "--show", path)
	b.devices[name] = device
	b.t.Cleanup(func() {
		_ = exec.CommandContext(context.Background(), "umount", "--all-targets", device).Run() // most tests have done so
		b.run("losetup", "--detach", device)
	})
	return device
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func capability(fsType string, mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode}}
	if fsType == "block" {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	} else {
		c.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: []string{"noatime"}}}
	}
	return c
}

// stage stages a volume; attributes are pairs of key and value.
func (b *bench) stage(name, fsType, path string, attributes ...string) error {
	all := map[string]string{api.AttributeUUID: "uuid-of-" + name}
	for i := 0; i+1 < len(attributes); i += 2 {
		all[attributes[i]] = attributes[i+1]
	}
	_, err := b.NodeStageVolume(b.t.Context(), &csi.NodeStageVolumeRequest{
		VolumeId: vgUUID + "/" + name, VolumeContext: all,
		StagingTargetPath: path, VolumeCapability: capability(fsType, rw),
	})
	return err
}

func (b *bench) unstage(name, path string) error {
	_, err := b.NodeUnstageVolume(b.t.Context(), &csi.NodeUnstageVolumeRequest{VolumeId: vgUUID + "/" + name, StagingTargetPath: path})
	return err
}

func (b *bench) publish(name, fsType, staging, target string, readOnly bool) error {
	_, err := b.NodePublishVolume(b.t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: vgUUID + "/" + name, VolumeContext: map[string]string{api.AttributeUUID: "uuid-of-" + name},
		StagingTargetPath: staging, TargetPath: target, VolumeCapability: capability(fsType, rw), Readonly: readOnly,
	})
	return err
}

func (b *bench) unpublish(name, target string) error {
	_, err := b.NodeUnpublishVolume(b.t.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: vgUUID + "/" + name, TargetPath: target})
	return err
}

// keep writes a file, which expectKept reads.
func (b *bench) keep(dir, text string) {
	b.t.Helper()
	b.must(os.WriteFile(filepath.Join(dir, "kept"), []byte(text), 0o600))
}

func (b *bench) expectKept(dir, text string) {
	b.t.Helper()
	if found, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(found) != text {
		b.t.Errorf("the file in %s reads %q, %v; want %q", dir, found, err, text)
	}
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func TestFileSystemsFromStageToUnstageTwice(t *testing.T) {
	for _, fsType := range filesystem.Types {
		t.Run(fsType, func(t *testing.T) {
			b := newBench(t)
			device := b.created("v", 320)
			staging, one, two := b.path("staging"), b.path("pods/one"), b.path("pods/two")
			for range 2 { // each call twice: the second must find its work done
				b.must(b.stage("v", fsType, staging))
			}
			for range 2 {
				b.must(b.publish("v", fsType, staging, one, false))
				b.must(b.publish("v", fsType, staging, two, true))
			}
			b.keep(one, "data")
			if err := os.WriteFile(filepath.Join(two, "refused"), nil, 0o600); err == nil {
				t.Error("a read-only target was written to")
			}
			if options := b.run("findmnt", "-n", "-o", "OPTIONS", one); !strings.Contains(options, "noatime") {
				t.Errorf("the mount option noatime was lost: %s", options)
			}
			if found := b.run("blkid", "-p", "-s", "TYPE", "-o", "value", device); found != fsType {
				t.Errorf("the device holds %s, want %s", found, fsType)
			}
			if err := b.publish("v", fsType, staging, two, false); lvm.KindOf(err) != lvm.KindExists {
				t.Errorf("publishing for writing over a read-only target: %v", err)
			}
			b.stats("v", one)
			for range 2 {
				b.must(b.unpublish("v", one))
				b.must(b.unpublish("v", two))
			}
			for range 2 {
				b.must(b.unstage("v", staging))
			}
			for _, gone := range []string{one, two} {
				if _, err := os.Lstat(gone); !os.IsNotExist(err) {
					t.Errorf("%s is still there: %v", gone, err)
				}
			}
			b.must(b.stage("v", fsType, staging))
			b.expectKept(staging, "data")
			b.must(b.unstage("v", staging))
		})
	}
}

func (b *bench) stats(name, path string) {
	b.t.Helper()
	reply, err := b.NodeGetVolumeStats(b.t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: vgUUID + "/" + name, VolumePath: path})
	b.must(err)
	size := reply.GetUsage()[0]
	if size.GetTotal() < 250*megabytes || size.GetTotal() > 320*megabytes || size.GetAvailable() <= 0 || size.GetUsed() <= 0 {
		b.t.Errorf("a volume of 320 MiB reports %v", size)
	}
	found, err := b.FileSystems(b.t.Context())
	b.must(err)
	entry := found[lvm.ID{VG: vgUUID, LV: name}]
	if entry.Error != "" || int64(entry.Size) != size.GetTotal() || int64(entry.Used) != size.GetUsed() || len(reply.GetUsage()) > 1 && entry.Inodes != reply.GetUsage()[1].GetTotal() {
		b.t.Errorf("the status document has %+v, NodeGetVolumeStats %v", entry, reply)
	}
	for _, inodes := range reply.GetUsage()[1:] { // btrfs does not count them
		if inodes.GetUsed() < 1 || inodes.GetTotal() != inodes.GetUsed()+inodes.GetAvailable() {
			b.t.Errorf("inodes do not add up: %v", inodes)
		}
	}
}

func TestOnePodAtATime(t *testing.T) {
	for _, kind := range []string{"ext4", "block"} {
		b := newBench(t)
		b.volume("v", 16)
		staging := b.path("staging")
		publish := func(target string) error {
			_, err := b.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
				VolumeId: vgUUID + "/v", VolumeContext: map[string]string{api.AttributeUUID: "uuid-of-v"}, StagingTargetPath: staging, TargetPath: b.path(target),
				VolumeCapability: capability(kind, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER),
			})
			return err
		}
		b.must(b.stage("v", kind, staging))
		b.must(publish("one"))
		b.must(publish("one"))
		if err := publish("two"); lvm.KindOf(err) != lvm.KindInUse || !strings.Contains(err.Error(), b.path("one")) {
			t.Errorf("%s: a second pod: %v", kind, err)
		}
		b.must(b.unpublish("v", b.path("one")))
		b.must(publish("two"))
		b.must(b.unpublish("v", b.path("two")))
		b.must(b.unstage("v", staging))
	}
}
