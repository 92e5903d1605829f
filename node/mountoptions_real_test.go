//go:build realfs

package node

import (
	"os"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

// TestMountOptionsOnDisk: the driver mounts with each generic option as mount(8) does, and needs no process of it.
func TestMountOptionsOnDisk(t *testing.T) {
	generic := []string{"defaults", "ro", "rw", "noatime", "atime", "noatime,atime", "nodiratime", "relatime", "norelatime", "strictatime",
		"nostrictatime", "lazytime", "nolazytime", "sync", "async", "sync,async", "dirsync", "nosuid", "nosuid,suid", "nodev", "noexec", "ro,noexec,discard",
		"nosymfollow", "iversion", "iversion,noiversion"}
	for _, fsType := range filesystem.Types {
		t.Run(fsType, func(t *testing.T) {
			b := newBench(t)
			device, at := b.volume("v", 320), b.path("at")
			b.run("mkfs."+fsType, device)
			b.run("mkdir", at)
			for _, options := range generic {
				b.run("mount", "-t", fsType, "-o", options, device, at)
				want := b.mountedAt(at)
				b.run("umount", at)
				if got := b.mountWithoutPrograms(device, at, fsType, options); got != want {
					t.Errorf("-o %s: mounted with %s, but mount(8) mounts with %s", options, got, want)
				}
			}
		})
	}
}

// TestWritableOrNotMounted: a volume for writing is never mounted read-only, and no error calls its file system damaged, if its device takes
// no writes or is mounted read-only elsewhere.
func TestWritableOrNotMounted(t *testing.T) {
	b := newBench(t)
	device, staging, elsewhere := b.created("v", 32), b.path("staging"), b.path("elsewhere")
	b.must(b.stage("v", "ext4", staging))
	b.must(b.unstage("v", staging))
	b.run("mkdir", elsewhere)
	t.Cleanup(func() { b.run("blockdev", "--setrw", device) }) // the loop device would stay read-only
	refused := func(why, says string) {
		t.Helper()
		err := b.stage("v", "ext4", staging)
		if lvm.KindOf(err) != lvm.KindConflict || err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", why, err)
		}
		if info, err := b.mounts.Inspect(staging); err != nil || info.Mount != nil {
			t.Errorf("%s: %+v, %v", why, info.Mount, err)
		}
	}
	b.run("blockdev", "--setro", device)
	refused("no writes", "write-protected")
	b.run("blockdev", "--setrw", device)
	b.run("mount", "-o", "ro", device, elsewhere)
	refused("read-only elsewhere", "already mounted")
	b.umount(elsewhere)
	b.must(b.stage("v", "ext4", staging))
}

// mountWithoutPrograms mounts and unmounts where the driver finds no program, and returns mountedAt.
func (b *bench) mountWithoutPrograms(device, at, fsType, options string) string {
	b.t.Helper()
	path := os.Getenv("PATH")
	b.must(os.Setenv("PATH", b.dir))
	defer func() { b.must(os.Setenv("PATH", path)) }()
	b.must(b.mounts.Mount(device, at, fsType, []string{options}))
	mounted := b.mountedAt(at)
	b.must(b.mounts.Unmount(at))
	return mounted
}

// mountedAt returns the options of the mount at a path, and of its file system.
func (b *bench) mountedAt(path string) string {
	b.t.Helper()
	mounts, err := dm.ReadMounts("/proc/self/mountinfo")
	b.must(err)
	for _, m := range mounts {
		if m.Point == path {
			return m.Options + " " + m.SuperOptions
		}
	}
	b.t.Fatalf("nothing is mounted at %s", path)
	return ""
}
