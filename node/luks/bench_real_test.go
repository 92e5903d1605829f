//go:build realfs

package luks

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// These tests use cryptsetup and dm-crypt on logical volumes of a disk of a lab node.

const group = "luks"

func TestMain(m *testing.M) {
	disks := os.Getenv("NODELVM_TEST_DISKS")
	if os.Geteuid() != 0 || disks == "" {
		fmt.Fprintln(os.Stderr, "tests with the tag realfs overwrite the disks in NODELVM_TEST_DISKS: run them as root in a lab node")
		os.Exit(1)
	}
	for _, tool := range []string{"cryptsetup", "vgcreate", "mkfs.ext4", "resize2fs", "blkid", "wipefs", "unshare", "fstrim"} {
		if _, err := exec.LookPath(tool); err != nil {
			fmt.Fprintf(os.Stderr, "tests with the tag realfs need %s: apt-get install cryptsetup-bin lvm2 e2fsprogs util-linux mount\n", tool)
			os.Exit(1)
		}
	}
	os.Exit(run(m, strings.Split(disks, ",")[0]))
}

func run(m *testing.M, disk string) int {
	if os.Getenv("NODELVM_TEST_INSIDE") != "" || os.Getenv(powerJournal) != "" { // TestRealContainer has created the group; TestPowerVictim has none
		return m.Run()
	}
	for _, command := range []string{
		"vgremove -ffy " + group, "wipefs -aq " + disk, "vgcreate -qq -s 4m " + group + " " + disk,
		"lvcreate -qq -y -L 300m -T " + group + "/pool",
	} {
		if err := shell(command); err != nil && !strings.HasPrefix(command, "vgremove") {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	defer func() {
		_ = exec.CommandContext(context.Background(), "vgremove", "-ffy", group).Run()
		_ = exec.CommandContext(context.Background(), "wipefs", "-aq", disk).Run()
	}()
	return m.Run()
}

func shell(command string) error {
	out, err := exec.CommandContext(context.Background(), "sh", "-c", command).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return nil
}

// bench is a Manager on this machine, which counts its processes.
type bench struct {
	*Manager
	t        *testing.T
	commands []command
}

// command is one finished cryptsetup.
type command struct {
	name      string // "open"
	duration  time.Duration
	maxMemory lvm.Bytes // resident
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t}
	b.Manager = New(nil)
	b.machine = linux{runCommand: func(cmd *exec.Cmd) error {
		began := time.Now()
		err := cmd.Run()
		if cmd.ProcessState != nil {
			usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			b.commands = append(b.commands, command{cmd.Args[1], time.Since(began), lvm.Bytes(usage.Maxrss) * lvm.KiB})
		}
		return err
	}}
	return b
}

func (b *bench) run(name string, args ...string) string {
	b.t.Helper()
	out, err := exec.CommandContext(context.Background(), name, args...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// names returns the commands since the last call.
func (b *bench) names() string {
	var names []string
	for _, c := range b.commands {
		names = append(names, c.name)
	}
	b.commands = nil
	return strings.Join(names, " ")
}

// volume creates a logical volume for a claim of 40 MiB; extra are options of lvcreate that replace its size.
func (b *bench) volume(name string, extra ...string) Volume {
	b.t.Helper()
	if extra == nil {
		extra = []string{"-L", fmt.Sprintf("%db", int64(40*lvm.MiB+lvm.LUKSHeaderSize)), group}
	}
	b.run("lvcreate", append([]string{"-qq", "-y", "-Wy", "-n", name}, extra...)...)
	return b.existing(name)
}

func (b *bench) existing(name string) Volume {
	b.t.Helper()
	uuid := b.run("lvs", "--noheadings", "-o", "lv_uuid", group+"/"+name)
	device, err := filepath.EvalSymlinks("/dev/" + group + "/" + name)
	must(b.t, err)
	v := NewVolume("group-uuid/"+name, uuid, device)
	b.t.Cleanup(func() {
		_ = exec.CommandContext(context.Background(), "umount", "-A", b.path(v)).Run() // most tests have unmounted it
		if err := (linux{}).removeMapping(context.Background(), v.name); err != nil {
			b.t.Error(err)
		}
		b.run("lvremove", "-qq", "-y", group+"/"+name)
	})
	return v
}

func (b *bench) path(v Volume) string {
	m, err := (linux{}).mapping(v.name)
	must(b.t, err)
	return m.Path()
}

// blank returns the node service's proof that a device is blank.
func blank(device string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, "blkid", "-p", device).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			return lvm.Errorf(lvm.KindConflict, "not blank: %s", out)
		}
		if out, err := exec.CommandContext(ctx, "wipefs", device).Output(); err != nil || len(out) > 0 {
			return lvm.Errorf(lvm.KindConflict, "not blank: %s", out)
		}
		file, err := os.Open(device)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		head := make([]byte, 4096)
		if _, err := file.ReadAt(head, 0); err != nil || !bytes.Equal(head, make([]byte, 4096)) {
			return lvm.Errorf(lvm.KindConflict, "not blank: its first 4 KiB hold data (%v): %q", err, head)
		}
		return nil
	}
}

func randomKey(t *testing.T) *Key {
	t.Helper()
	secret := make([]byte, MinKey)
	_, _ = rand.Read(secret) // never fails
	keys, err := ParseSecret(map[string]string{FieldKey: base64.StdEncoding.EncodeToString(secret)})
	must(t, err)
	return keys.Current
}

func request(v Volume, keys Keys) Request {
	return Request{Volume: v, Keys: keys, Blank: blank(v.Device)}
}

func (b *bench) stage(r Request) string {
	b.t.Helper()
	began := time.Now()
	device, err := b.Stage(b.t.Context(), r)
	must(b.t, err)
	b.t.Logf("stage %s in %s", r.Handle, time.Since(began).Round(time.Millisecond))
	return device
}

func (b *bench) unstage(handle string) {
	b.t.Helper()
	must(b.t, b.Unstage(b.t.Context(), handle))
}

// isHealthy expects a header without a problem and with this number of key slots.
func (b *bench) isHealthy(v Volume, slots int) bool {
	b.t.Helper()
	problem, err := b.Check(v)
	o, again := b.machine.observe(v)
	if err != nil || again != nil || problem != "" || len(usable(o.Header.Slots)) != slots {
		b.t.Logf("%s: %q, %v, %v, %+v", v.Handle, problem, err, again, o.Header)
		return false
	}
	return true
}

// opens reports whether a key opens the volume. It asks cryptsetup, not the Manager.
func (b *bench) opens(v Volume, k *Key) bool {
	b.t.Helper()
	cmd := exec.CommandContext(b.t.Context(), "cryptsetup", "open", "--disable-locks", "--test-passphrase", "--key-file=-", v.Device)
	cmd.Stdin = bytes.NewReader(k.secret)
	return cmd.Run() == nil
}

// write formats a new volume, and writes a file to it.
func (b *bench) write(device, content string) {
	b.t.Helper()
	b.run("mkfs.ext4", "-q", device)
	dir := b.mount(device)
	must(b.t, os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o600))
	b.run("umount", dir)
}

func (b *bench) mount(device string) string {
	b.t.Helper()
	dir := b.t.TempDir()
	// mount(8) resolves /dev/dm-N to a name in /dev/mapper, which udev may remove and create while it processes a killed
	// command's events.
	for end := time.Now().Add(wait.Limit(10 * time.Second)); ; time.Sleep(10 * time.Millisecond) {
		out, err := exec.CommandContext(b.t.Context(), "mount", device, dir).CombinedOutput()
		if err == nil {
			return dir
		}
		if !strings.Contains(string(out), "Can't lookup blockdev") || time.Now().After(end) {
			b.t.Fatalf("mount %s: %v: %s", device, err, out)
		}
	}
}

func (b *bench) expectContent(device, want string) {
	b.t.Helper()
	dir := b.mount(device)
	got, err := os.ReadFile(filepath.Join(dir, "file"))
	if err != nil || string(got) != want {
		b.t.Errorf("the file has %q, %v; want %q", got, err, want)
	}
	b.run("umount", dir)
}

func expectKind(t *testing.T, err error, kind lvm.Kind, says string) {
	t.Helper()
	if lvm.KindOf(err) != kind || err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("error %v (kind %d), want kind %d and one that says %q", err, lvm.KindOf(err), kind, says)
	}
}
