//go:build realfs

package luks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestRealProcessShowsNoKey reads what other processes of the node can read of each cryptsetup: its arguments, environment and
// files.
func TestRealProcessShowsNoKey(t *testing.T) {
	b := newBench(t)
	v := b.volume("shown")
	keys, err := ParseSecret(map[string]string{FieldKey: "0123456789abcdefGHIJKLMNOPqrstuv"})
	must(t, err)
	looks := 0
	b.machine = linux{runCommand: func(cmd *exec.Cmd) error {
		if err := cmd.Start(); err != nil {
			return err
		}
		looks++
		for _, file := range []string{"cmdline", "environ", "comm"} {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, file))
			if err != nil || strings.Contains(string(data), string(keys.Current.secret)) {
				t.Errorf("%s of %s shows the key, or cannot be read: %v", file, cmd.Args[1], err)
			}
		}
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", cmd.Process.Pid))
		if err != nil {
			t.Error(err)
		}
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, "/tmp") {
				t.Errorf("%s has the file %s open", cmd.Args[1], target)
			}
		}
		return cmd.Wait()
	}}
	b.stage(request(v, keys))
	next := randomKey(t)
	b.unstage(v.Handle)
	b.stage(request(v, Keys{Current: next, Previous: keys.Current}))
	if looks < 6 {
		t.Errorf("%d processes", looks)
	}
	if table := b.run("dmsetup", "table", "--showkeys", v.name); !strings.Contains(table, ":64:logon:cryptsetup:") {
		t.Errorf("the table shows the volume key")
	}
}

// TestRealLock: a cryptsetup that outlives the driver excludes the next driver from the volume.
func TestRealLock(t *testing.T) {
	b := newBench(t)
	v := b.volume("locked")
	r := request(v, Keys{Current: randomKey(t)})
	var orphan *exec.Cmd
	killed := New(nil)
	killed.machine = linux{runCommand: func(cmd *exec.Cmd) error {
		orphan = exec.CommandContext(context.Background(), "sleep", "60") // stands for a slow cryptsetup
		orphan.ExtraFiles = cmd.ExtraFiles
		if err := orphan.Start(); err != nil {
			return err
		}
		return errStopped
	}}
	if _, err := killed.Stage(t.Context(), r); err == nil {
		t.Fatal("the stage was not stopped")
	}
	_, err := b.Stage(t.Context(), r)
	expectKind(t, err, lvm.KindBusy, "an earlier cryptsetup")
	_ = orphan.Process.Kill()
	_ = orphan.Wait() // it was killed
	b.stage(r)
}

// TestRealSnapshot: a snapshot between Suspend and resume has the data that the file system had not written before.
func TestRealSnapshot(t *testing.T) {
	b := newBench(t)
	origin := b.volume("source", "-V", "56m", "-T", group+"/pool")
	r := request(origin, Keys{Current: randomKey(t)})
	device := b.stage(r)
	b.run("mkfs.ext4", "-q", device)
	dir := b.mount(device)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte(content), 0o600); err != nil { // without a sync
		t.Fatal(err)
	}
	resume, err := b.Suspend(origin.Handle)
	must(t, err)
	out, err := exec.CommandContext(t.Context(), "lvcreate", "-qq", "-s", "-kn", "-n", "frozen", "--devices", strings.Split(os.Getenv("NODELVM_TEST_DISKS"), ",")[0], group+"/source").CombinedOutput()
	if again := resume(); err != nil || again != nil {
		t.Fatalf("lvcreate: %v: %s; resume: %v", err, out, again)
	}
	v := b.existing("frozen")
	v.Copied = true
	b.expectContent(b.stage(request(v, r.Keys)), content)
	if _, err := New(nil).Suspend(origin.Handle); err != nil { // by a driver that is killed
		t.Fatal(err)
	}
	_, err = b.Stage(t.Context(), r)
	expectKind(t, err, lvm.KindInUse, "suspended")
	must(t, b.Recover(t.Context()))
	b.stage(r)
	b.run("umount", dir)
}
