//go:build realfs

package node

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/node/mount"
)

// host is another mount namespace that the mounts below a directory reach, as those of the driver's container reach the
// node.
func (b *bench) host() (mounts func(path string) []dm.Mount) {
	b.t.Helper()
	b.run("mount", "--bind", b.dir, b.dir)
	b.run("mount", "--make-private", b.dir) // else it is a peer of the root directory's mount, and each mount below it appears twice
	b.run("mount", "--make-shared", b.dir)
	cmd := exec.CommandContext(b.t.Context(), "unshare", "--mount", "--propagation", "unchanged", "sh", "-c", "echo ready; exec sleep infinity")
	out, err := cmd.StdoutPipe()
	b.must(err)
	b.must(cmd.Start())
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		b.run("umount", b.dir)
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.t.Fatal(err)
	}
	return func(path string) []dm.Mount {
		all, err := dm.ReadMounts(fmt.Sprintf("/proc/%d/mountinfo", cmd.Process.Pid))
		b.must(err)
		return slices.DeleteFunc(all, func(m dm.Mount) bool { return m.Point != path })
	}
}

func isReadOnly(m dm.Mount) bool { return slices.Contains(strings.Split(m.Options, ","), "ro") }

// What is published read-only is so in each namespace that it appears in, from the beginning.
func TestReadOnlyPublishReachesTheHost(t *testing.T) {
	for _, kind := range []string{"ext4", "block"} {
		b := newBench(t)
		b.volume("v", 16)
		mounts := b.host()
		staging, target, writer := b.path("staging"), b.path("pods/reader"), b.path("pods/writer")
		b.must(b.stage("v", kind, staging))
		b.must(b.publish("v", kind, staging, target, true))
		if found := mounts(target); len(found) != 1 || !isReadOnly(found[0]) {
			t.Errorf("%s: on the host it is %+v", kind, found)
		}
		if kind == "ext4" {
			b.must(b.publish("v", kind, staging, writer, false))
			if found := mounts(writer); len(found) != 1 || isReadOnly(found[0]) {
				t.Errorf("%s: a writer beside it: %+v", kind, found)
			}
			if options := mounts(target)[0].Options; !strings.Contains(options, "noatime") {
				t.Errorf("the reader's mount lost an option: %s", options)
			}
			b.must(b.unpublish("v", writer))
		}
		b.must(b.unpublish("v", target))
		b.must(b.unstage("v", staging))
		if found := mounts(target); len(found) != 0 {
			t.Errorf("%s: on the host there is still %+v", kind, found)
		}
	}
}

func TestReadOnlyBindOfOldKernels(t *testing.T) {
	b := newBench(t)
	device := b.volume("v", 16)
	staging, target, file := b.path("staging"), b.path("target"), b.path("file")
	mounts := b.host()
	b.must(b.stage("v", "ext4", staging))
	b.must(os.Mkdir(target, 0o700))
	b.must(os.WriteFile(file, nil, 0o600))
	for source, path := range map[string]string{staging: target, device: file} {
		b.must(mount.BindReadOnlyBeforeLinux512(source, path))
		if found := mounts(path); len(found) != 1 || !isReadOnly(found[0]) {
			t.Errorf("%s: on the host it is %+v", path, found)
		}
		b.run("umount", path)
	}
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "nodelvm-bind-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	if found := b.run("findmnt", "-n", "-o", "OPTIONS", staging); !strings.HasPrefix(found, "rw,noatime") {
		t.Errorf("the source became %s", found)
	}
	b.must(b.unstage("v", staging))
}

// A raw device that is published read-only takes no writes, not from root, not through a loop device as the kubelet makes one,
// not from who had it open before.
func TestReadOnlyBlockPublish(t *testing.T) {
	b := newBench(t)
	device := b.volume("v", 8)
	target := b.path("pod")
	before, err := os.OpenFile(device, os.O_RDWR, 0)
	b.must(err)
	defer func() { _ = before.Close() }()
	b.must(b.publish("v", "block", b.path("staging"), target, true))
	unchanged := b.digestBefore()
	if err := os.WriteFile(target, []byte("refused"), 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a write: %v", err)
	}
	if _, err := before.WriteAt([]byte("refused"), 0); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a write of who had it open: %v", err)
	}
	loop := b.run("losetup", "--find", "--show", target)
	f, err := os.OpenFile(loop, os.O_WRONLY|os.O_SYNC, 0)
	if err == nil {
		if _, err = f.Write(make([]byte, 4096)); err == nil {
			t.Error("a write through a loop device succeeded")
		}
		_ = f.Close()
	}
	b.run("losetup", "--detach", loop)
	for end := time.Now().Add(wait.Limit(10 * time.Second)); b.run("losetup", "--associated", target) != "" && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // udev may have it open; it holds the target until that ends
	}
	unchanged()
	if err := b.publish("v", "block", b.path("staging"), b.path("writer"), false); lvm.KindOf(err) != lvm.KindInUse {
		t.Errorf("a writer beside it: %v", err)
	}
	if _, err := os.Lstat(b.path("writer")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the writer's path: %v", err)
	}
	b.must(b.unpublish("v", target))
	if readOnly, err := b.block.ReadOnly(device); err != nil || readOnly {
		t.Errorf("after the end of the pod the device is read-only: %v, %v", readOnly, err)
	}
	b.must(b.publish("v", "block", b.path("staging"), b.path("writer"), false))
	b.must(os.WriteFile(b.path("writer"), []byte("written"), 0))
	b.must(b.unpublish("v", b.path("writer")))
}

// What is refused or fails leaves none of the directories that were made for it.
func TestRefusedMountsLeaveNoDirectories(t *testing.T) {
	b := newBench(t)
	b.volume("v", 16)
	staging := b.path("staging")
	b.must(b.stage("v", "ext4", staging))
	deep := filepath.Join(b.dir, "pods", strings.Repeat("d/", 500))
	for what, target := range map[string]string{
		"a name that is too long": filepath.Join(deep, strings.Repeat("n", 256)),
		"a path that is too long": filepath.Join(b.dir, "pods", strings.Repeat("0123456/", 520)),
		"a NUL byte":              filepath.Join(deep, "a\x00b"),
	} {
		if err := b.publish("v", "ext4", staging, target, false); lvm.KindOf(err) != lvm.KindInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	m := mount.New()
	failing := New(Config{NodeName: "n", Devices: b.devices, Mounts: failingMount{m}})
	honest := b.Server
	b.Server = failing
	if err := b.publish("v", "ext4", staging, filepath.Join(deep, "target"), false); err == nil {
		t.Error("the mount did not fail")
	}
	b.Server = honest
	if _, err := m.CreateMountPoint(filepath.Join(b.dir, "pods/a/b", strings.Repeat("n", 256)), false); err == nil {
		t.Error("a name that is too long was made")
	}
	if left, err := os.ReadDir(filepath.Join(b.dir, "pods")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v, %v", left, err)
	}
	b.must(b.unstage("v", staging))
}

type failingMount struct{ mount.Machine }

func (failingMount) Bind(string, string, bool) error { return errors.New("no mount today") }

// What is mounted at a path is unmounted only if it is the volume.
func TestUnmountRefusesOtherMounts(t *testing.T) {
	b := newBench(t)
	b.volume("v", 16)
	b.volume("w", 16)
	staging, target, foreign := b.path("staging"), b.path("target"), b.path("foreign")
	b.must(b.stage("v", "ext4", staging))
	b.must(b.publish("v", "ext4", staging, target, false))
	b.must(os.Mkdir(foreign, 0o750))
	b.run("mount", "-t", "tmpfs", "somebody", foreign)
	t.Cleanup(func() { b.run("umount", foreign) })
	b.must(os.WriteFile(filepath.Join(foreign, "theirs"), []byte("x"), 0o600))
	before := b.run("findmnt", "-n", "-o", "TARGET")
	for _, path := range []string{staging, target, foreign} {
		if err := errors.Join(b.unpublish("w", path), b.unstage("w", path)); lvm.KindOf(err) != lvm.KindConflict {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := b.unpublish("v", foreign); lvm.KindOf(err) != lvm.KindConflict {
		t.Error(err)
	}
	if after := b.run("findmnt", "-n", "-o", "TARGET"); after != before {
		t.Errorf("mounted are %s, and were %s", after, before)
	}
	b.must(b.unpublish("v", target))
	b.must(b.unstage("v", staging))
	b.must(b.unpublish("v", target)) // it is gone
}
