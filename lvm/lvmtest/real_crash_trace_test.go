//go:build reallvm && amd64

package lvmtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The crash tests put this very test binary in the place of /usr/sbin/lvm, in a mount namespace of the driver that is
// to crash. There it runs the real lvm under ptrace(2) and counts the points at which something changes for good: the
// command's start, each write to a disk, each ioctl that changes a device-mapper device, the command's end. At the one
// that it was told, it kills. The driver passes no environment on, so what is to be done stands in a file.
const (
	traceDir  = "/run/nodelvm-crash"
	tracePlan = traceDir + "/plan" // "WHO POINT"
	traceLog  = traceDir + "/log"  // one line for each point that was reached
	realLVM   = traceDir + "/lvm"
)

// Who dies at a point.
const (
	killLVM    = "lvm"    // lvm alone, as by the OOM killer
	killBoth   = "both"   // the driver and its lvm: a pod's end
	killDriver = "driver" // the driver alone; lvm goes on
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "lvm" {
		os.Exit(trace())
	}
	code := m.Run()
	if len(realDisks) > 0 {
		forgetDisks()
	}
	os.Exit(code)
}

// trace runs the real lvm with our arguments, and answers its exit status.
func trace() int {
	runtime.LockOSThread() // all of ptrace is one thread's affair
	t := &tracer{command: os.Args[1]}
	plan, err := os.ReadFile(tracePlan)
	if err == nil {
		_, err = fmt.Sscan(string(plan), &t.who, &t.cut)
	}
	if log, logErr := os.ReadFile(traceLog); logErr == nil {
		t.reached = strings.Count(string(log), "\n")
	}
	cmd := exec.Command(realLVM, os.Args[1:]...) //nolint:noctx // it lives as long as we do
	cmd.Args[0] = "lvm"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if os.Getenv("LVM_REPORT_FD") != "" { // it only reads
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "report")}
		err = errors.Join(err, cmd.Run())
		return exitOf(cmd, err)
	}
	inherit(cmd)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	t.point("start")
	if err = errors.Join(err, cmd.Start()); err != nil {
		return exitOf(cmd, err)
	}
	status, err := t.follow(cmd.Process.Pid)
	if err != nil {
		return exitOf(cmd, err)
	}
	t.pid = 0
	t.point("end")
	if status.Signaled() {
		dieOf(status.Signal())
	}
	return status.ExitStatus()
}

// inherit hands on the descriptors that the driver gave to lvm, such as its lock.
func inherit(cmd *exec.Cmd) {
	for fd := 3; fd < 10; fd++ {
		path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil || !strings.HasSuffix(path, ".lock") {
			return
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(fd), path))
	}
}

func exitOf(cmd *exec.Cmd, err error) int {
	if err != nil && cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "the crash tests' lvm:", err)
		return 99
	}
	return cmd.ProcessState.ExitCode()
}

type tracer struct {
	command string
	who     string
	cut     int // the point, counted from 1 over all commands; 0: none
	reached int
	pid     int
}

// follow runs the process from one system call to the next, to its end.
func (t *tracer) follow(pid int) (unix.WaitStatus, error) {
	t.pid = pid
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		return status, err
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_EXITKILL); err != nil {
		return status, fmt.Errorf("the options of ptrace: %w", err)
	}
	signal, entering := 0, true
	for {
		if err := unix.PtraceSyscall(pid, signal); err != nil {
			return status, fmt.Errorf("ptrace goes on to the next system call: %w", err)
		}
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
			return status, err
		}
		signal = 0
		switch {
		case status.Exited() || status.Signaled():
			return status, nil
		case !status.Stopped():
		case status.StopSignal() == unix.SIGTRAP|0x80:
			if entering {
				if err := t.syscall(); err != nil {
					return status, err
				}
			}
			entering = !entering
		case status.StopSignal() != unix.SIGTRAP:
			signal = int(status.StopSignal())
		}
	}
}

// dmChanges are the ioctls of device-mapper that change something (Linux, include/uapi/linux/dm-ioctl.h).
var dmChanges = map[uint64]string{3: "DM_DEV_CREATE", 4: "DM_DEV_REMOVE", 5: "DM_DEV_RENAME", 6: "DM_DEV_SUSPEND",
	9: "DM_TABLE_LOAD", 10: "DM_TABLE_CLEAR", 14: "DM_TARGET_MSG"}

func (t *tracer) syscall() error {
	number, err := t.register(registerNumber)
	if err != nil {
		return err
	}
	first, err := t.register(registerFirst)
	if err != nil {
		return err
	}
	switch number {
	case unix.SYS_IOCTL:
		request, err := t.register(registerSecond)
		if err != nil {
			return err
		}
		if name, changes := dmChanges[request&0xff]; changes && request>>8&0xff == 0xfd {
			if name == "DM_DEV_SUSPEND" && !t.suspends() {
				name = "DM_DEV_RESUME"
			}
			t.point(name)
		}
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_IO_SUBMIT:
		file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.pid, first))
		if err == nil && strings.HasPrefix(file, "/dev/") && file != "/dev/null" && !strings.HasPrefix(file, "/dev/pts") {
			t.point("write to " + file)
		}
	}
	return nil
}

// Where a stopped process's registers are in struct user (Linux, arch/x86/include/asm/user_64.h). User-mode Linux knows
// PTRACE_PEEKUSER, and not every way to get them all at once.
const (
	registerNumber = 15 * 8 // orig_rax
	registerFirst  = 14 * 8 // rdi
	registerSecond = 13 * 8 // rsi
	registerThird  = 12 * 8 // rdx
)

func (t *tracer) register(offset uintptr) (uint64, error) {
	word := make([]byte, 8)
	if _, err := unix.PtracePeekUser(t.pid, offset, word); err != nil {
		return 0, fmt.Errorf("a register of lvm: %w", err)
	}
	return binary.NativeEndian.Uint64(word), nil
}

// suspends reads the flags of a struct dm_ioctl, which tell suspending and resuming apart: DM_SUSPEND_FLAG is bit 1.
func (t *tracer) suspends() bool {
	address, err := t.register(registerThird)
	flags := make([]byte, 4)
	if err == nil {
		_, err = unix.PtracePeekData(t.pid, uintptr(address)+28, flags)
	}
	return err == nil && flags[0]&2 != 0
}

// point notes that a point is reached, and kills if it is the one.
func (t *tracer) point(what string) {
	t.reached++
	log, err := os.OpenFile(traceLog, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(log, "%s: %s\n", t.command, what)
	_ = log.Close()
	if t.reached != t.cut {
		return
	}
	if t.who != killLVM {
		_ = unix.Kill(os.Getppid(), unix.SIGKILL)
	}
	if t.who == killDriver {
		return
	}
	if t.pid != 0 {
		_ = unix.Kill(t.pid, unix.SIGKILL)
	}
	dieOf(unix.SIGKILL)
}

func dieOf(s syscall.Signal) {
	_ = unix.Kill(os.Getpid(), s)
	select {}
}
