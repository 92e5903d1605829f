//go:build realfs

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

// enlarge makes a volume larger, as lvextend does: some MiB in all.
func (b *bench) enlarge(name string, size int64) {
	b.t.Helper()
	b.must(os.Truncate(b.path(name+".img"), size*megabytes))
	b.run("losetup", "--set-capacity", b.devices[name])
}

func (b *bench) expand(name, path string, size int64) error {
	_, err := b.NodeExpandVolume(b.t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: vgUUID + "/" + name, VolumePath: path, CapacityRange: &csi.CapacityRange{RequiredBytes: size * megabytes},
	})
	return err
}

// wants tells whether the driver would let the file system grow now.
func (b *bench) wants(name, fsType string) bool {
	b.t.Helper()
	more, err := b.tools.CanResize(b.devices[name], fsType)
	b.must(err)
	return more
}

// spans fails unless the device is the file system's, but for its tables and its log.
func (b *bench) spans(path string, size int64) {
	b.t.Helper()
	var usage unix.Statfs_t
	b.must(unix.Statfs(path, &usage))
	total := lvm.Bytes(usage.Blocks) * lvm.Bytes(usage.Frsize)
	if least := lvm.Bytes(size) * megabytes * 7 / 10; total < least {
		b.t.Errorf("of %d MiB the file system has %s, want at least %s", size, total, least)
	}
}

// Online, offline, and after a step that was lost; each with sizes at which the tools leave a little out at the end.
func TestGrowth(t *testing.T) {
	for _, fsType := range filesystem.Types {
		t.Run(fsType, func(t *testing.T) {
			b := newBench(t)
			b.volume("v", 304)
			staging := b.path("staging")
			b.must(b.stage("v", fsType, staging))
			b.keep(staging, "data")
			size := int64(304)
			for _, step := range []int64{4, 208, 508} {
				size += step
				b.enlarge("v", size)
				b.must(b.expand("v", staging, size))
				b.spans(staging, size)
				b.must(b.expand("v", staging, size))
			}
			b.must(b.unstage("v", staging))
			if b.wants("v", fsType) {
				t.Errorf("with %d MiB it wants to grow though it has", size)
			}
			for _, step := range []int64{260} { // expanded while no process used it
				size += step
				b.enlarge("v", size)
				b.must(b.stage("v", fsType, staging))
				b.spans(staging, size)
				b.must(b.unstage("v", staging))
				if b.wants("v", fsType) {
					t.Errorf("with %d MiB it wants to grow though it has", size)
				}
			}
			b.must(b.stage("v", fsType, staging))
			b.expectKept(staging, "data")
			b.must(b.unstage("v", staging))
		})
	}
}

// A fresh file system does not want to grow, whatever the size of its device. (xfs does, once: mkfs.xfs leaves out more
// than xfs_growfs.)
func TestFreshFileSystemsDoNotGrow(t *testing.T) {
	for fsType, sizes := range map[string][]int64{"ext4": {16, 128, 132, 136, 1028, 9220}, "btrfs": {112, 1028}} {
		b := newBench(t)
		for _, size := range sizes {
			name := fmt.Sprintf("v%d", size)
			device := b.volume(name, size)
			b.must(b.tools.Format(t.Context(), filesystem.Formatting{Device: device, Size: lvm.Bytes(size) * megabytes, Mark: filesystem.Mark{UUID: "uuid"}, Type: fsType}))
			if b.wants(name, fsType) {
				t.Errorf("a fresh %s on %d MiB wants to grow", fsType, size)
			}
		}
	}
}

// copyOf makes a volume that holds what another one holds at this moment, as a snapshot does.
func (b *bench) copyOf(name, origin string) {
	b.t.Helper()
	b.run("sync", b.devices[origin])
	b.run("cp", "--sparse=always", b.path(origin+".img"), b.path(name+".img"))
	b.attach(name, b.path(name+".img"))
}

// Copies of a mounted file system, taken with a log that is not replayed yet, are mounted beside it and beside each
// other, and larger than it; and so are copies of copies. None is formatted: what was synced is there.
func TestCopiesBesideTheirOrigin(t *testing.T) {
	for _, fsType := range filesystem.Types {
		t.Run(fsType, func(t *testing.T) {
			b := newBench(t)
			b.volume("v", 320)
			origin := b.path("origin")
			b.must(b.stage("v", fsType, origin))
			synced(t, filepath.Join(origin, "kept"))
			b.copyOf("one", "v")
			b.copyOf("two", "v")
			b.enlarge("two", 512)
			b.copied("one", fsType, 320)
			b.copied("two", fsType, 512)
			synced(t, filepath.Join(b.path("one"), "more"))
			b.copyOf("third", "one")
			b.copied("third", fsType, 320)
			for _, name := range []string{"one", "two", "third"} { // and each again, alone and beside the others
				b.must(b.unstage(name, b.path(name)))
				b.copied(name, fsType, 0)
			}
			synced(t, filepath.Join(origin, "after"))
			for _, name := range []string{"one", "two", "third"} {
				if _, err := os.Lstat(filepath.Join(b.path(name), "after")); !os.IsNotExist(err) {
					t.Errorf("%s is not a copy but the origin: %v", name, err)
				}
				b.must(b.unstage(name, b.path(name)))
			}
			b.must(b.unstage("v", origin))
		})
	}
}

// copied stages a clone and reads its content.
func (b *bench) copied(name, fsType string, size int64) {
	b.t.Helper()
	b.must(b.stage(name, fsType, b.path(name), api.AttributeSource, "source"))
	b.expectKept(b.path(name), "data")
	b.spans(b.path(name), size)
}

// synced writes a file as a database does: into the file system's log.
func synced(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	if _, err := f.WriteString("data"); err != nil {
		t.Fatal(err)
	}
	must(t, f.Sync())
	must(t, f.Close())
}

func TestMkfsOptionsOfTheClass(t *testing.T) {
	for fsType, test := range map[string]struct{ options, tool, says string }{
		"ext4":  {"-i 65536 -L mine -E lazy_itable_init=0", "dumpe2fs -h", "mine"},
		"xfs":   {"-m reflink=0,crc=1 -i size=1024", "xfs_info", "isize=1024"},
		"btrfs": {"-m single -L mine", "btrfs filesystem label", "mine"},
	} {
		b := newBench(t)
		device := b.volume("v", 320)
		b.must(b.stage("v", fsType, b.path("staging"), api.AttributeMkfsOptions, test.options))
		tool := append(strings.Fields(test.tool), device)
		if fsType == "xfs" {
			tool[len(tool)-1] = b.path("staging")
		}
		if out := b.run(tool[0], tool[1:]...); !strings.Contains(out, test.says) {
			t.Errorf("%s with %s: %s", fsType, test.options, out)
		}
		b.must(b.unstage("v", b.path("staging")))
	}
}

// A file system that met an error is found; one that was mounted read-only, for a pod or by its class, is not.
func TestHealthOfRealFileSystems(t *testing.T) {
	b := newBench(t)
	b.volume("v", 16)
	staging := b.path("staging")
	b.must(b.stage("v", "ext4", staging))
	b.must(b.publish("v", "ext4", staging, b.path("pod"), true))
	if findings, err := b.Health(t.Context()); err != nil || len(findings) != 0 {
		t.Errorf("in good health: %v, %v", findings, err)
	}
	trigger := filepath.Join("/sys/fs/ext4", filepath.Base(b.devices["v"]), "trigger_fs_error")
	b.must(os.WriteFile(trigger, []byte("a test"), 0))
	findings, err := b.Health(t.Context())
	if err != nil || len(findings) != 1 || findings[0].Volume.ID.LV != "v" || findings[0].Type != lvm.ConditionFileSystemReadOnly {
		t.Errorf("after an error: %v, %v", findings, err)
	}
	b.must(b.unpublish("v", b.path("pod")))
	b.must(b.unstage("v", staging))
	b.must(b.stage("v", "ext4", staging)) // checked, and well again
	if findings, err := b.Health(t.Context()); err != nil || len(findings) != 0 {
		t.Errorf("mounted anew: %v, %v", findings, err)
	}
	b.must(b.unstage("v", staging))
}
