//go:build realfs

package luks

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

const content = "nodelvm plaintext 0123456789"

func TestRealBlock(t *testing.T) {
	b := newBench(t)
	v := b.volume("raw")
	v.Block = true
	r := request(v, Keys{Current: randomKey(t)})
	device := b.stage(r)
	if size := b.run("blockdev", "--getss", device); size != "512" {
		t.Errorf("a raw volume's logical sector is %s", size)
	}
	name := "/dev/mapper/" + v.name
	must(t, os.Remove(name)) // as a killed cryptsetup leaves it
	b.stage(r)
	if _, err := os.Stat(name); err != nil {
		t.Errorf("mount(8) does not find the mapping: %v", err)
	}
	pod, err := os.OpenFile(device, os.O_RDWR, 0)
	must(t, err)
	// A pod overwrites all that it can access.
	if _, err := io.Copy(pod, io.LimitReader(zeroes{}, int64(40*lvm.MiB))); err != nil {
		t.Fatal(err)
	}
	b.run("lvextend", "-qq", "-L", "+8m", group+"/raw")
	if _, size, err := b.Expand(t.Context(), r); err != nil || size != 48*lvm.MiB {
		t.Errorf("expansion of an open raw volume to %s: %v", size, err)
	}
	must(t, pod.Close())
	b.unstage(v.Handle)
	if left, _ := filepath.Glob("/dev/mapper/" + namePrefix + "*"); len(left) > 0 {
		t.Errorf("names of closed mappings are left: %q", left)
	}
	if !b.isHealthy(v, 1) {
		t.Error("a pod overwrote the header")
	}
	b.stage(r)
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestRealPassphrase(t *testing.T) {
	b := newBench(t)
	keys, err := ParseSecret(map[string]string{FieldPassphrase: "correct horse battery staple"})
	must(t, err)
	r := request(b.volume("pass"), keys)
	b.stage(r)
	b.unstage(r.Handle)
	b.stage(r)
	for _, c := range b.commands {
		t.Logf("%s: %s, %s", c.name, c.duration, c.maxMemory)
		if c.maxMemory > 96*lvm.MiB {
			t.Errorf("%s used %s of memory", c.name, c.maxMemory)
		}
	}
	b.unstage(r.Handle)
	r.Keys.Current = randomKey(t)
	_, err = b.Stage(t.Context(), r)
	expectKind(t, err, lvm.KindConflict, "the key in the Secret does not open volume")
	if _, _, open, err := b.Mapping(r.Handle); err != nil || open || !b.isHealthy(r.Volume, 1) {
		t.Errorf("after a wrong key: open %t, %v", open, err)
	}
}

func TestRealRefusals(t *testing.T) {
	b := newBench(t)
	ext4 := b.volume("ext4")
	b.run("mkfs.ext4", "-q", ext4.Device)
	foreign := b.volume("foreign")
	b.run("sh", "-c", "echo 12345678 | cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file=- "+foreign.Device)
	first := b.volume("first")
	b.run("sh", "-c", "echo 12345678 | cryptsetup luksFormat -q --type luks1 --pbkdf-force-iterations 1000 --key-file=- "+first.Device)
	zeroed, erased, another, other := b.volume("zeroed"), b.volume("erased"), b.volume("another"), b.volume("other")
	key := Keys{Current: randomKey(t)}
	for _, v := range []Volume{zeroed, erased, another, other} {
		b.stage(request(v, key))
		b.unstage(v.Handle)
	}
	b.run("dd", "if=/dev/zero", "of="+zeroed.Device, "bs=1M", "count=8", "conv=fsync", "status=none")
	b.run("cryptsetup", "luksErase", "-q", erased.Device)
	b.run("dd", "if="+another.Device, "of="+other.Device, "bs=1M", "count=16", "conv=fsync", "status=none")
	b.names()
	for _, test := range []struct {
		v    Volume
		says string
	}{
		{ext4, "ext4"}, {foreign, "subsystem"}, {first, "version 1"}, {zeroed, "is missing"}, {erased, "no key slot"}, {other, "is another volume's"},
	} {
		before := b.run("sha256sum", test.v.Device)
		_, err := b.Stage(t.Context(), request(test.v, key))
		expectKind(t, err, lvm.KindConflict, test.says)
		if names := b.names(); names != "" || b.run("sha256sum", test.v.Device) != before {
			t.Errorf("%s: refused, but changed, or after %q", test.v.Handle, names)
		}
	}
}

func TestRealMappingHeldByAnother(t *testing.T) {
	b := newBench(t)
	v := b.volume("held")
	r := request(v, Keys{Current: randomKey(t)})
	b.stage(r)
	b.unstage(v.Handle)
	cmd := exec.CommandContext(t.Context(), "cryptsetup", "open", "--key-file=-", v.Device, "admins")
	cmd.Stdin = bytes.NewReader(r.Keys.Current.secret)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, err := b.Stage(t.Context(), r)
	expectKind(t, err, lvm.KindInUse, "admins")
	expectKind(t, b.Erase(t.Context(), v), lvm.KindInUse, "admins")
	b.run("cryptsetup", "close", "admins")
	b.stage(r)
}

func TestRealCopy(t *testing.T) {
	b := newBench(t)
	origin := b.volume("origin", "-V", "56m", "-T", group+"/pool")
	r := request(origin, Keys{Current: randomKey(t)})
	r.Discards = true
	device := b.stage(r)
	b.write(device, content)
	dir := b.mount(device)
	b.run("fstrim", dir)
	b.run("umount", dir)
	b.run("sync")
	b.run("lvcreate", "-qq", "-s", "-kn", "-n", "copy", group+"/origin")
	v := b.existing("copy")
	_, err := b.Stage(t.Context(), request(v, r.Keys))
	expectKind(t, err, lvm.KindConflict, "is another volume's")
	v.Copied = true
	b.names()
	copied := b.stage(request(v, r.Keys))
	if names := b.names(); names != "luksUUID open" {
		t.Errorf("the first stage of a copy ran %q", names)
	}
	b.expectContent(copied, content)
	b.unstage(v.Handle)
	must(t, b.Erase(t.Context(), v))
	b.expectContent(device, content) // the origin has its own header
	dir = b.mount(b.stage(r))
	b.run("fstrim", dir)
	b.run("umount", dir)
}

// TestRealContainer runs a volume's lifecycle with a read-only /run, and in another IPC namespace than udev, which never answers.
func TestRealContainer(t *testing.T) {
	if os.Getenv("NODELVM_TEST_INSIDE") != "" {
		t.Fatal("it contains itself")
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--ipc", "--mount", "sh", "-c",
		"mount --bind /run /run && mount -o remount,bind,ro /run && exec /proc/"+"self/fd/3 -test.v -test.run '^TestRealBlock$|^TestRealPassphrase$'")
	cmd.Env = append(os.Environ(), "NODELVM_TEST_INSIDE=1", "LVM_SYSTEM_DIR="+lvmConfig(t))
	self, err := os.Open("/proc/self/exe")
	must(t, err)
	defer func() { _ = self.Close() }()
	cmd.ExtraFiles = []*os.File{self}
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestRealBlock")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// lvmConfig writes the configuration of an lvm without /run and udev.
func lvmConfig(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text := `global { locking_dir = "` + dir + `/lock" } activation { udev_sync = 0 udev_rules = 0 } devices { obtain_device_list_from_udev = 0 external_device_info_source = "none" hints = "none" }`
	must(t, os.WriteFile(filepath.Join(dir, "lvm.conf"), []byte(text), 0o600))
	return dir
}
