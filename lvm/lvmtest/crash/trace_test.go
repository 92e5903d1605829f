//go:build reallvm

package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/tracing"
)

// The crash tests trace a driver, the victim, and its child processes with ptrace(2), and count the points at which something
// changes permanently. The points are the start of each of its lvm commands, each write to a disk, each ioctl that changes a
// device-mapper device or zeroes a range of one, and the command's end. They kill just before the planned point takes effect. A
// seccomp(2) filter stops the processes only at those system calls, so that they run almost as fast as without a tracer.

// Which processes die at a point.
const (
	killLVM    = "lvm"    // lvm alone, as by the OOM killer
	killBoth   = "both"   // the driver and its lvm: a pod's end
	killDriver = "driver" // the driver alone; lvm continues
	killPower  = "power"  // the node: the driver, its lvm, and the group's state in the kernel; all writes are on the disks
)

// kill is one way to die at one point.
type kill struct {
	who   string
	point int           // from 1, in the first count of the operation; 0: no kill.
	name  string        // the point's name.
	nth   int           // the nth point of this name: a command may take one step more or less than in the first count.
	after time.Duration // delay after the point, if the driver dies alone
}

// ofDriver begins the names of the points of the driver itself.
const ofDriver = "nodelvm: "

// tracer traces one victim, on its own thread: ptrace belongs to one thread.
type tracer struct {
	victim   int
	commands map[int]string // the commands of lvm processes that write
	known    map[int]bool   // processes and threads that have stopped for the first time

	mu     sync.Mutex
	plan   kill
	passed []point // since aim
	later  *time.Timer
	killed bool
}

// point is one that a victim has passed.
type point struct {
	name string
	at   time.Time
}

// aim plans a kill, and restarts the count.
func (t *tracer) aim(k kill) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plan, t.passed, t.killed = k, nil, false
}

// outcome returns the points passed since aim, and whether the kill happened; it cancels a kill that did not.
func (t *tracer) outcome() (passed []point, killed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.later != nil {
		t.later.Stop()
		t.later = nil
	}
	return t.passed, t.killed
}

// begin starts tracing a process that has stopped at its first instruction.
func (t *tracer) begin(pid int) error {
	t.victim, t.commands, t.known = pid, map[int]string{}, map[int]bool{pid: true}
	if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
		return err
	}
	const options = unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACEEXEC | unix.PTRACE_O_EXITKILL |
		unix.PTRACE_O_TRACEFORK | unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_TRACECLONE
	if err := unix.PtraceSetOptions(pid, options); err != nil {
		return fmt.Errorf("the options of ptrace: %w", err)
	}
	return unix.PtraceCont(pid, 0)
}

// follow traces until no process is left.
func (t *tracer) follow(ended func(pid int)) error {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WALL|unix.WNOTHREAD, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil:
			return fmt.Errorf("wait for a traced process: %w", err)
		case status.Exited() || status.Signaled():
			delete(t.commands, pid)
			delete(t.known, pid)
			ended(pid)
			continue
		}
		signal := t.stopped(pid, status)
		if err := unix.PtraceCont(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: it was killed
			return fmt.Errorf("continue process %d: %w", pid, err)
		}
	}
}

// stopped handles the stop of a process or thread, and returns the signal with which it continues.
func (t *tracer) stopped(pid int, status unix.WaitStatus) (signal int) {
	switch cause := status.TrapCause(); {
	case cause == unix.PTRACE_EVENT_EXEC:
		if command := commandOf(pid); command != "" {
			t.commands[pid] = command
			t.point(pid, command+": start")
		}
	case cause == unix.PTRACE_EVENT_SECCOMP:
		t.syscall(pid)
	case cause > 0: // a new child or thread, which stops by itself
	case status.StopSignal() == unix.SIGSTOP && !t.known[pid]:
		t.known[pid] = true
	default:
		return int(status.StopSignal())
	}
	return 0
}

// commandOf returns the command of an lvm that writes; "" for any other process.
func commandOf(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	words := strings.Split(string(line), "\x00")
	if err != nil || len(words) < 2 || filepath.Base(words[0]) != "lvm" || words[1] == "fullreport" {
		return ""
	}
	return words[1]
}

// dmChanges are the ioctls of device-mapper that change something (Linux, include/uapi/linux/dm-ioctl.h).
var dmChanges = map[uint64]string{3: "DM_DEV_CREATE", 4: "DM_DEV_REMOVE", 5: "DM_DEV_RENAME", 6: "DM_DEV_SUSPEND",
	9: "DM_TABLE_LOAD", 10: "DM_TABLE_CLEAR", 14: "DM_TARGET_MSG"}

// syscall handles a system call that a process is about to make.
func (t *tracer) syscall(pid int) {
	command, isLVM := t.commands[pid]
	switch call := tracing.CallOf(pid); {
	case call.Number == unix.SYS_IOCTL:
		what := changeOf(pid, call)
		switch {
		case what == "":
		case isLVM:
			t.point(pid, command+": "+what)
		case t.ofVictim(pid):
			t.point(pid, ofDriver+what)
		}
	case !isLVM:
	case call.Number == unix.SYS_EXIT_GROUP:
		t.point(pid, command+": end")
	default:
		file := fmt.Sprintf("/proc/%d/fd/%d", pid, call.First)
		info, err := os.Stat(file)
		name, gone := os.Readlink(file)
		if err == nil && gone == nil && info.Mode().Type() == os.ModeDevice {
			t.point(pid, command+": write to "+diskOrVolume(name[max(0, strings.LastIndex(name, "/dev/")):]))
		}
	}
}

// diskOrVolume returns the path of a disk. A volume's path differs in each run: it has the volume's name, and is in the driver's device directory.
func diskOrVolume(path string) string {
	if strings.HasPrefix(path, "/dev/mapper/") {
		return "a volume"
	}
	return path
}

// ofVictim reports whether this is a thread of the driver.
func (t *tracer) ofVictim(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", t.victim, pid))
	return err == nil
}

// changeOf names what an ioctl changes; "" for nothing.
func changeOf(pid int, call tracing.Call) string {
	if call.Second == unix.BLKZEROOUT {
		return "BLKZEROOUT"
	}
	name := dmChanges[call.Second&0xff]
	if name == "DM_DEV_SUSPEND" && !suspends(pid, call) {
		name = "DM_DEV_RESUME"
	}
	return name
}

// point records a point, and kills if it is the planned one.
func (t *tracer) point(pid int, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passed = append(t.passed, point{what, time.Now()})
	if what != t.plan.name || countPoints(t.passed, what) != t.plan.nth {
		return
	}
	if t.plan.after > 0 {
		t.later = time.AfterFunc(t.plan.after, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.later != nil { // else it was too late
				t.kill(pid)
			}
		})
		return
	}
	t.kill(pid)
}

func countPoints(points []point, name string) (n int) {
	for _, p := range points {
		if p.name == name {
			n++
		}
	}
	return n
}

// kill kills as planned. The caller holds t.mu.
func (t *tracer) kill(lvm int) {
	t.killed = true
	if t.plan.who != killDriver {
		_ = unix.Kill(lvm, unix.SIGKILL)
	}
	if t.plan.who != killLVM {
		_ = unix.Kill(t.victim, unix.SIGKILL)
	}
}

// suspends reads the flags of a struct dm_ioctl, which distinguish suspend from resume: DM_SUSPEND_FLAG is bit 1.
func suspends(pid int, call tracing.Call) bool {
	flags := make([]byte, 4)
	_, err := unix.PtracePeekData(pid, uintptr(call.Third)+28, flags)
	return err == nil && flags[0]&2 != 0
}

// stopAtPoints makes this process and its children stop at the system calls that may be points: writes to anything but the
// standard streams, ioctls that zero or are device-mapper's, and the end (seccomp(2); the offsets are those of struct
// seccomp_data).
func stopAtPoints() error {
	const load, and, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	const equal, atLeast = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	const number, first, second = 0, 16, 24
	program := []unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_EXIT_GROUP, Jt: 12},
		{Code: equal, K: unix.SYS_WRITE, Jt: 8},
		{Code: equal, K: unix.SYS_PWRITE64, Jt: 7},
		{Code: equal, K: unix.SYS_WRITEV, Jt: 6},
		{Code: equal, K: unix.SYS_PWRITEV, Jt: 5},
		{Code: equal, K: unix.SYS_IOCTL, Jf: 6},
		{Code: load, K: second},
		{Code: equal, K: unix.BLKZEROOUT, Jt: 5},
		{Code: and, K: 0xff00},
		{Code: equal, K: 0xfd00, Jt: 3, Jf: 2},
		{Code: load, K: first}, // a write's
		{Code: atLeast, K: 3, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
		{Code: answer, K: unix.SECCOMP_RET_TRACE},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return fmt.Errorf("install the filter of system calls: %w", errno)
	}
	return nil
}
