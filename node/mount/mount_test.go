package mount

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// TestMountPointBelowDanglingLink: a pods directory that is a link to what the container lacks is named in the error, with the cure.
func TestMountPointBelowDanglingLink(t *testing.T) {
	pods := filepath.Join(t.TempDir(), "pods")
	check.Must(t, os.Symlink("/no/such/pods", pods))
	made, err := Machine{}.CreateMountPoint(filepath.Join(pods, "uid/volumes/mount"), false)
	if lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), pods+" is a symbolic link to /no/such/pods") || len(made) != 0 {
		t.Errorf("created %q: %v", made, err)
	}
	check.Must(t, os.Remove(pods))
	if made, err := (Machine{}).CreateMountPoint(filepath.Join(pods, "uid"), false); err != nil || len(made) != 2 {
		t.Errorf("without the link, created %q: %v", made, err)
	}
}

// TestMountCommand: mount(8) mounts for writing or not at all. Without --rw it would mount what takes no writes, or what is mounted read-only
// elsewhere, read-only. It gets no SELinux label.
func TestMountCommand(t *testing.T) {
	dir := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(dir, "mount"), []byte("#!/bin/sh\necho \"$@\" >"+dir+"/arguments\n"), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for options, want := range map[string]string{
		"noatime":                          "--no-canonicalize --rw -t ext4 -o noatime /dev/none " + dir,
		"ro,rw":                            "--no-canonicalize --rw -t ext4 -o ro,rw /dev/none " + dir,
		"noatime,ro":                       "--no-canonicalize -t ext4 -o noatime,ro /dev/none " + dir,
		`noatime,context="a:b:c:s0:c1,c2"`: "--no-canonicalize --rw -t ext4 -o noatime /dev/none " + dir,
	} {
		check.Must(t, New().Mount("/dev/none", dir, "ext4", []string{options}))
		if got, err := os.ReadFile(filepath.Join(dir, "arguments")); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s: mount %s, %v; want %s", options, got, err, want)
		}
	}
}

// TestKindOfMountError: only what may be a damaged file system is lvm.KindInternal.
func TestKindOfMountError(t *testing.T) {
	for errno, want := range map[unix.Errno]lvm.Kind{
		unix.ENODEV: lvm.KindConflict, unix.EACCES: lvm.KindConflict, unix.EROFS: lvm.KindConflict, unix.EBUSY: lvm.KindConflict,
		unix.EINVAL: lvm.KindInternal, unix.EUCLEAN: lvm.KindInternal, unix.EIO: lvm.KindInternal, unix.EBADMSG: lvm.KindInternal,
	} {
		if got := kindOfMountError(errno); got != want {
			t.Errorf("%v: kind %v, want %v", errno, got, want)
		}
	}
}

func TestReadAtOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "device")
	check.Must(t, os.WriteFile(path, bytes.Repeat([]byte("ab"), 50), 0o600))
	if data, err := New().ReadAt(path, 1, 3); err != nil || string(data) != "bab" {
		t.Errorf("ReadAt = %q, %v", data, err)
	}
	if data, err := New().ReadAt(path, 98, 3); err == nil {
		t.Errorf("ReadAt beyond the end of a device = %q, want an error", data)
	}
}
