//go:build realfs

package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/utils/exec"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/tracing"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

// killing runs mkfs under ptrace(2), counts its writes to the device, and kills it at the start of one.
type killing struct {
	exec.Interface
	at     int // from 1; 0: it lives
	passed int
}

func (k *killing) Command(name string, args ...string) exec.Cmd {
	cmd := k.Interface.Command(name, args...)
	if strings.HasPrefix(name, "mkfs.") {
		return &killedCmd{Cmd: cmd, k: k, argv: append([]string{name}, args...)}
	}
	return cmd
}

type killedCmd struct {
	exec.Cmd
	k    *killing
	argv []string
	out  io.Writer // for both streams
}

func (c *killedCmd) SetStdout(out io.Writer) { c.out = out }

func (c *killedCmd) Run() (err error) {
	c.k.passed = 0
	var out []byte
	done := make(chan struct{})
	go func() { // all of ptrace is one thread's affair
		runtime.LockOSThread() // and not given back: the thread ends
		defer close(done)
		out, err = c.k.trace(c.argv)
	}()
	<-done
	_, writeErr := c.out.Write(out)
	return errors.Join(err, writeErr)
}

func (k *killing) trace(argv []string) ([]byte, error) {
	cmd := osexec.Command(argv[0], argv[1:]...) //nolint:noctx // it is never cut short but by us
	var out bytes.Buffer
	log, err := os.CreateTemp("", "mkfs")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(log.Name()) }()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	status, err := k.follow(cmd.Process.Pid)
	text, _ := os.ReadFile(log.Name())
	out.Write(text)
	switch {
	case err != nil:
		return out.Bytes(), err
	case status.Signaled() || status.ExitStatus() != 0:
		return out.Bytes(), fmt.Errorf("%s ended with %v", argv[0], status)
	}
	return out.Bytes(), nil
}

func (k *killing) follow(leader int) (ended unix.WaitStatus, err error) {
	inside := map[int]bool{} // a system call
	var status unix.WaitStatus
	if _, err := unix.Wait4(leader, &status, 0, nil); err != nil {
		return status, err
	}
	const options = unix.PTRACE_O_TRACESYSGOOD | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_EXITKILL
	if err := errors.Join(unix.PtraceSetOptions(leader, options), unix.PtraceSyscall(leader, 0)); err != nil {
		return status, err
	}
	for {
		pid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return ended, nil
		case err != nil:
			return ended, err
		case status.Exited() || status.Signaled():
			if pid == leader {
				ended = status
			}
			continue
		}
		signal := 0
		if status.StopSignal() == unix.SIGTRAP|0x80 {
			if inside[pid] = !inside[pid]; inside[pid] && isWrite(pid) {
				if k.passed++; k.passed == k.at {
					if err := unix.Kill(leader, unix.SIGKILL); err != nil {
						return ended, err
					}
				}
			}
		} else if s := status.StopSignal(); s != unix.SIGTRAP && s != unix.SIGSTOP {
			signal = int(s)
		}
		if err := unix.PtraceSyscall(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return ended, err
		}
	}
}

func isWrite(pid int) bool {
	switch tracing.CallOf(pid).Number {
	case unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_FALLOCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		return true
	}
	return false
}

// TestKilledMkfsIsRepeated kills mkfs at its writes, one after the other: the next attempt to stage the volume succeeds by
// itself, whatever was left.
func TestKilledMkfsIsRepeated(t *testing.T) {
	for _, test := range []struct {
		fsType, options string
		size            int64
	}{
		{"ext4", "", 16},
		{"ext4", "-b 2048 -O ^has_journal", 16},
		{"ext4", "-b 4096", 32},
		{"xfs", "", 304},
		{"btrfs", "", 112},
	} {
		name := test.fsType + test.options
		for name, create := range map[string]func(*bench) string{
			name:              func(b *bench) string { return b.created("v", test.size) },
			"earlier " + name: func(b *bench) string { return b.volume("v", test.size) },
		} {
			t.Run(name, func(t *testing.T) {
				total := atEachWrite(t, func(b *bench, at, total int) int {
					create(b)
					total = b.killed(test.fsType, test.options, at, total)
					b.startsByItself(test.fsType, test.options)
					return total
				})
				t.Logf("%d writes", total)
			})
		}
	}
}

// TestKilledMkfsThenExpanded: the volume grows after mkfs was killed, so that its end, and the mark before that, are elsewhere.
func TestKilledMkfsThenExpanded(t *testing.T) {
	for _, test := range []struct {
		name, fsType           string
		created, before, after int64 // MiB: at the creation, for mkfs, and after it was killed
	}{
		{"ext4", "ext4", 16, 16, 32}, {"ext4, expanded before mkfs too", "ext4", 16, 32, 64}, {"xfs", "xfs", 304, 304, 512}, {"btrfs", "btrfs", 112, 112, 160},
	} {
		t.Run(test.name, func(t *testing.T) {
			atEachWrite(t, func(b *bench, at, total int) int {
				b.created("v", test.created)
				b.enlarge("v", test.before)
				total = b.killed(test.fsType, "", at, total)
				if at > 0 { // else it counts the writes
					b.enlarge("v", test.after)
					b.startsByItself(test.fsType, "")
				}
				return total
			})
		})
	}
}

// atEachWrite runs work for 0 and each write at which mkfs is killed, as far as step selects it. work returns the number of the writes.
func atEachWrite(t *testing.T, work func(b *bench, at, total int) int) (total int) {
	t.Helper()
	for at := 0; at <= total; at += step(at, total) {
		if !t.Run(strconv.Itoa(at), func(t *testing.T) { total = work(newBench(t), at, total) }) { // each gives the space of its volume back
			t.FailNow()
		}
	}
	return total
}

// killed stages the volume "v", with mkfs killed at one of its writes; at 0 it lives, and the number of its writes is returned.
func (b *bench) killed(fsType, options string, at, total int) int {
	b.t.Helper()
	k := &killing{Interface: exec.New(), at: at}
	honest := b.tools
	b.tools = filesystem.Tools{Exec: k}
	err := b.stage("v", fsType, b.path("staging"), api.AttributeMkfsOptions, options)
	if (err == nil) != (at == 0) {
		b.t.Fatalf("killed at write %d of %d: %v", at, total, err)
	}
	b.tools = honest
	return max(total, k.passed)
}

// killsMost is how many of its writes each mkfs is killed at; NODELVM_TEST_KILLS says another number.
const killsMost = 16

// step is the way to the next write at which mkfs is killed: over some in the middle where there are more than are wanted,
// over none in the last third of those that are.
func step(at, total int) int {
	most := killsMost
	if n, err := strconv.Atoi(os.Getenv("NODELVM_TEST_KILLS")); err == nil {
		most = n
	}
	last := most / 3
	if total <= most || at >= total-last {
		return 1
	}
	return min((total-last)/(most-last)+1, total-last-at)
}

// startsByItself stages the volume "v", uses it, and sees that it has no mark.
func (b *bench) startsByItself(fsType, options string) {
	b.t.Helper()
	staging := b.path("staging")
	if err := b.stage("v", fsType, staging, api.AttributeMkfsOptions, options); err != nil {
		b.t.Errorf("the next attempt: %v", err)
		return
	}
	b.keep(staging, "data")
	if b.isMarked("v") {
		b.t.Error("it is mounted with the mark of mkfs")
	}
	b.umount(staging)
	b.must(b.stage("v", fsType, staging))
	b.expectKept(staging, "data")
	b.umount(staging)
}

// umount unmounts a file system. (NodeUnstageVolume needs device-mapper.)
func (b *bench) umount(path string) { b.t.Helper(); b.run("umount", path) }

// TestMarkAfterFinishedMkfs: mkfs ended, and the driver did before it took the mark away.
func TestMarkAfterFinishedMkfs(t *testing.T) {
	b := newBench(t)
	device := b.volume("v", 16)
	b.must(filesystem.New().Format(t.Context(), filesystem.Formatting{Device: device, Size: 16 * megabytes, Mark: filesystem.Mark{UUID: "uuid-of-v"}, Type: "ext4"}))
	b.write(device, int64(lvm.FormatMarkOffset(16*megabytes)), lvm.FormatMark("uuid-of-v"))
	uuid := b.run("blkid", "-p", "-s", "UUID", "-o", "value", device)
	b.startsByItself("ext4", "")
	if now := b.run("blkid", "-p", "-s", "UUID", "-o", "value", device); now != uuid {
		t.Errorf("it was formatted again: %s, and %s before", now, uuid)
	}
}

// TestNoMountedFileSystemIsFormatted: a file system that was mounted once is never made again, though its superblock is
// gone, and though another volume's mark is there, as in a copy.
func TestNoMountedFileSystemIsFormatted(t *testing.T) {
	for what, damage := range map[string]func(b *bench, device string){
		"no mark": func(*bench, string) {},
		"another's mark": func(b *bench, device string) {
			b.write(device, int64(lvm.FormatMarkOffset(16*megabytes)), lvm.FormatMark("uuid-of-x"))
		},
		"a torn mark": func(b *bench, device string) {
			b.write(device, int64(lvm.FormatMarkOffset(16*megabytes)), lvm.FormatMark("uuid-of-v")[:lvm.FormatMarkSize-512])
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t)
			device := b.volume("v", 16)
			b.startsByItself("ext4", "")
			b.write(device, 0, make([]byte, 2048))
			damage(b, device)
			b.refused("unknown kind", b.digestBefore(), func() error { return b.stage("v", "ext4", b.path("staging")) })
		})
	}
	b := newBench(t)
	device := b.volume("v", 304)
	b.startsByItself("xfs", "")
	b.write(device, 126, []byte{1}) // sb_inprogress
	b.refused("xfs", b.digestBefore(), func() error { return b.stage("v", "xfs", b.path("staging")) })
}

// TestMarkInAFileIsUserData: a mark in a file of a file system that is in use is the user's data.
func TestMarkInAFileIsUserData(t *testing.T) {
	b := newBench(t)
	device := b.volume("v", 16)
	b.startsByItself("ext4", "")
	b.write(device, int64(lvm.FormatMarkOffset(16*megabytes)), lvm.FormatMark("uuid-of-v"))
	unchanged := b.digestBefore()
	content, err := filesystem.New().Probe(t.Context(), device, filesystem.Mark{UUID: "uuid-of-v"})
	if err != nil || content.Marked || content.Type != "ext4" {
		t.Errorf("got %+v, %v", content, err)
	}
	unchanged()
}
