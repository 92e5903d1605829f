package lvm

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// testNode is a node made of plain files: a sysfs, a procfs and a /dev with disks in it.
type testNode struct{ sys, proc, dev string }

func newTestNode(t testing.TB) testNode {
	t.Helper()
	dir := t.TempDir()
	n := testNode{sys: filepath.Join(dir, "sys"), proc: filepath.Join(dir, "proc"), dev: filepath.Join(dir, "dev")}
	must(t, os.MkdirAll(filepath.Join(n.sys, "class/block"), 0o755))
	must(t, os.MkdirAll(n.dev, 0o755))
	must(t, os.MkdirAll(n.proc, 0o755))
	n.partitions(t)
	return n
}

// partitions writes /proc/partitions as the kernel does: devices without a size are not in it.
func (n testNode) partitions(t testing.TB) {
	t.Helper()
	text := "major minor  #blocks  name\n\n"
	sizes, err := filepath.Glob(filepath.Join(n.sys, "class/block/*/size"))
	must(t, err)
	for _, path := range sizes {
		content, err := os.ReadFile(path)
		must(t, err)
		var sectors int64
		_, err = fmt.Sscan(string(content), &sectors)
		must(t, err)
		if sectors > 0 {
			text += fmt.Sprintf("%4d  %7d %10d %s\n", 7, 1, sectors/2, filepath.Base(filepath.Dir(path)))
		}
	}
	must(t, os.WriteFile(filepath.Join(n.proc, "partitions"), []byte(text), 0o600))
}

// add plugs in a disk: a file of size bytes that begins with content.
func (n testNode) add(t testing.TB, name string, size int64, content []byte) {
	t.Helper()
	n.attribute(t, name, "size", fmt.Sprintln(size/512))
	must(t, os.MkdirAll(filepath.Join(n.sys, "class/block", name, "device"), 0o755)) // hardware
	n.attribute(t, name, "uevent", "MAJOR=7\nMINOR=1\nDEVNAME="+name+"\nDEVTYPE=disk\n")
	path := filepath.Join(n.dev, name)
	must(t, os.WriteFile(path, bytes.TrimRight(content, "\x00"), 0o600))
	must(t, os.Truncate(path, size))
}

func (n testNode) attribute(t testing.TB, device, name, value string) {
	t.Helper()
	path := filepath.Join(n.sys, "class/block", device, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(value), 0o600))
	if name == "size" {
		n.partitions(t)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scenarios are the captured groups, testdata/capture.sh.
func scenarios(t testing.TB) []string {
	t.Helper()
	dirs, err := filepath.Glob("testdata/groups/*")
	must(t, err)
	if len(dirs) < 34 {
		t.Fatalf("only %d captured groups in testdata/groups", len(dirs))
	}
	return dirs
}

// plug adds a captured scenario's disks to the node.
func (n testNode) plug(t testing.TB, scenario string) {
	t.Helper()
	sizes, err := os.ReadFile(filepath.Join(scenario, "sizes.txt"))
	must(t, err)
	for line := range strings.Lines(string(sizes)) {
		var name string
		var size int64
		_, err := fmt.Sscan(line, &name, &size)
		must(t, err)
		n.add(t, name, size, unzip(t, filepath.Join(scenario, name+".gz")))
		if end := filepath.Join(scenario, name+".end.gz"); exists(end) {
			f, err := os.OpenFile(filepath.Join(n.dev, name), os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt(unzip(t, end), size-1<<20)
			must(t, errors.Join(err, f.Close()))
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// unzipped keeps what unzip read: many tests look at the same disks, and the race detector makes inflating slow.
var unzipped sync.Map

func unzip(t testing.TB, path string) []byte {
	t.Helper()
	if content, ok := unzipped.Load(path); ok {
		return content.([]byte)
	}
	f, err := os.Open(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	must(t, err)
	content, err := io.ReadAll(z)
	must(t, err)
	unzipped.Store(path, content)
	return content
}

// plugAt adds a disk that stands at a place in sysfs, with a number.
func plugAt(t *testing.T, n testNode, folder, number string) {
	t.Helper()
	name := filepath.Base(folder)
	must(t, os.MkdirAll(filepath.Join(n.sys, folder, "holders"), 0o755))
	must(t, os.MkdirAll(filepath.Join(n.sys, "dev/block"), 0o755))
	must(t, os.Symlink(filepath.Join(n.sys, folder), filepath.Join(n.sys, "class/block", name)))
	must(t, os.Symlink(filepath.Join(n.sys, folder), filepath.Join(n.sys, "dev/block", number)))
	must(t, os.WriteFile(filepath.Join(n.sys, folder, "ro"), []byte("0\n"), 0o600))
}

func isOpen(t *testing.T, path string) bool {
	t.Helper()
	is, err := opened(path)
	must(t, err)
	return is
}

// opened tells whether this process has a file open.
func opened(path string) (bool, error) {
	open, err := filepath.Glob("/proc/self/fd/*")
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && to == path {
			return true, nil
		}
	}
	return false, err
}

// sysStack is a node with a disk, a partition and a file system on them, logical volumes, and whatever is made of those.
type sysStack struct {
	testNode
	t       *testing.T
	numbers int
}

// newSysStack has sda with sda1, both as hardware, and the logical volumes dm-0 and dm-1 on sda1.
func newSysStack(t *testing.T) *sysStack {
	s := &sysStack{testNode: newTestNode(t), t: t}
	s.make("devices/pci0000:00/host0/block/sda", 8)
	s.make("devices/pci0000:00/host0/block/sda/sda1", 8)
	s.attribute(t, "sda", "device/model", "DISK\n")
	s.attribute(t, "sda1", "partition", "1\n")
	for _, lv := range []string{"dm-0", "dm-1"} {
		s.mapper(lv, "LVM-abc"+lv, "sda1")
	}
	return s
}

// make adds a device that stands at a place in sysfs, with the next free number of a driver.
func (s *sysStack) make(folder string, major uint32) {
	s.t.Helper()
	name := filepath.Base(folder)
	s.numbers++
	number := fmt.Sprintf("%d:%d", major, s.numbers)
	plugAt(s.t, s.testNode, folder, number)
	s.attribute(s.t, name, "dev", number+"\n")
	s.attribute(s.t, name, "size", "131072\n")
	s.attribute(s.t, name, "uevent", fmt.Sprintf("MAJOR=%d\nMINOR=%d\nDEVNAME=%s\nDEVTYPE=disk\n", major, s.numbers, name))
	must(s.t, os.WriteFile(filepath.Join(s.dev, name), nil, 0o600))
	must(s.t, os.Truncate(filepath.Join(s.dev, name), 64<<20))
}

func (s *sysStack) virtual(name string, major uint32, slaves ...string) {
	s.t.Helper()
	s.make("devices/virtual/block/"+name, major)
	for _, slave := range slaves {
		s.attribute(s.t, name, "slaves/"+slave, "")
	}
}

func (s *sysStack) mapper(name, uuid string, slaves ...string) {
	s.t.Helper()
	s.virtual(name, 253, slaves...)
	s.attribute(s.t, name, "dm/uuid", uuid+"\n")
}

// number is a device's, as the kernel writes it.
func (s *sysStack) number(name string) uint64 {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.sys, "class/block", name, "dev"))
	must(s.t, err)
	var major, minor uint32
	_, err = fmt.Sscanf(string(text), "%d:%d", &major, &minor)
	must(s.t, err)
	return unix.Mkdev(major, minor)
}

// diskFile makes a file of so many bytes that stands for a disk, blank but for content in front.
func diskFile(t *testing.T, size Bytes, content []byte) (name, path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "disk")
	must(t, os.WriteFile(path, content, 0o600))
	must(t, os.Truncate(path, int64(size)))
	return "disk" + filepath.Base(dir), path
}

// diskSys is the sysfs that listDisk writes.
func diskSys(t *testing.T) string { return filepath.Join(filepath.Dir(t.TempDir()), "sys") }

// listDisk makes the disk's entry in sysfs, or another one in the place of the one that it had, and answers its inode.
func listDisk(t *testing.T, name string) uint64 {
	t.Helper()
	entry := filepath.Join(diskSys(t), "class/block", name)
	if exists(entry) {
		must(t, os.Rename(entry, entry+".gone")) // its inode stays in use
	}
	must(t, os.MkdirAll(entry, 0o755))
	var st unix.Stat_t
	must(t, unix.Lstat(entry, &st))
	return st.Ino
}
