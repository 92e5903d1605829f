//go:build reallvm && amd64

package lvmtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The crash tests follow a driver, the victim, and all that it starts with ptrace(2), and count the points at which
// something changes for good: the start of each of its lvm commands, each write to a disk, each ioctl that changes a
// device-mapper device or zeroes a stretch of one, the command's end. At the one that is planned, before it is done, they
// kill. A filter of seccomp(2) stops the processes at those system calls and at no other, so that they run almost as
// fast as unwatched.

// Who dies at a point.
const (
	killLVM    = "lvm"    // lvm alone, as by the OOM killer
	killBoth   = "both"   // the driver and its lvm: a pod's end
	killDriver = "driver" // the driver alone; lvm goes on
	killPower  = "power"  // the node: the driver, its lvm, and all that the kernel had of the group; all writes are on the disks
)

// kill is one way to die at one point.
type kill struct {
	who   string
	point int           // from 1, as the operation was counted; 0: nobody dies
	name  string        // of the point
	nth   int           // it is the nth of this name: a command may take one step more or less than when it was counted
	after time.Duration // so long after the point, if the driver dies alone
}

// ofDriver begins the names of points that the driver passes by itself.
const ofDriver = "nodelvm: "

// tracer follows one victim, on a thread of its own: all of ptrace is one thread's affair.
type tracer struct {
	victim   int
	commands map[int]string // of processes that are an lvm that writes: its command
	known    map[int]bool   // processes and threads that have stopped for the first time

	mu     sync.Mutex
	plan   kill
	passed []point // since the plan was made
	later  *time.Timer
	killed bool
}

// point is one that a victim has passed.
type point struct {
	name string
	at   time.Time
}

// aim plans a kill, and begins to count anew.
func (t *tracer) aim(k kill) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plan, t.passed, t.killed = k, nil, false
}

// outcome tells which points were passed since then, and whether the kill happened; it does not happen any more.
func (t *tracer) outcome() (passed []point, killed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.later != nil {
		t.later.Stop()
		t.later = nil
	}
	return t.passed, t.killed
}

// begin takes a process that has stopped at its first instruction.
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

// follow goes on until nobody is left to be followed.
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
			return fmt.Errorf("wait for what is followed: %w", err)
		case status.Exited() || status.Signaled():
			delete(t.commands, pid)
			delete(t.known, pid)
			ended(pid)
			continue
		}
		signal := t.stopped(pid, status)
		if err := unix.PtraceCont(pid, signal); err != nil && !errors.Is(err, unix.ESRCH) { // ESRCH: it was killed
			return fmt.Errorf("let %d go on: %w", pid, err)
		}
	}
}

// stopped looks why a process or thread has stopped, and tells the signal that it is to go on with.
func (t *tracer) stopped(pid int, status unix.WaitStatus) (signal int) {
	switch cause := status.TrapCause(); {
	case cause == unix.PTRACE_EVENT_EXEC:
		if command := commandOf(pid); command != "" {
			t.commands[pid] = command
			t.point(pid, command+": start")
		}
	case cause == unix.PTRACE_EVENT_SECCOMP:
		t.syscall(pid)
	case cause > 0: // a child or a thread was made; it stops by itself
	case status.StopSignal() == unix.SIGSTOP && !t.known[pid]:
		t.known[pid] = true
	default:
		return int(status.StopSignal())
	}
	return 0
}

// commandOf is the command of an lvm that writes; "" for any other process.
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

// syscall looks at a system call that a process is about to make.
func (t *tracer) syscall(pid int) {
	command, isLVM := t.commands[pid]
	switch number := register(pid, registerNumber); {
	case number == unix.SYS_IOCTL:
		what := changeOf(pid)
		switch {
		case what == "":
		case isLVM:
			t.point(pid, command+": "+what)
		case t.ofVictim(pid):
			t.point(pid, ofDriver+what)
		}
	case !isLVM:
	case number == unix.SYS_EXIT_GROUP:
		t.point(pid, command+": end")
	default:
		file := fmt.Sprintf("/proc/%d/fd/%d", pid, register(pid, registerFirst))
		info, err := os.Stat(file)
		name, gone := os.Readlink(file)
		if err == nil && gone == nil && info.Mode().Type() == os.ModeDevice {
			// A volume's is in the device directory of the driver, which has another path in each run.
			t.point(pid, command+": write to "+name[max(0, strings.LastIndex(name, "/dev/")):])
		}
	}
}

// ofVictim tells whether this is a thread of the driver's.
func (t *tracer) ofVictim(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", t.victim, pid))
	return err == nil
}

// changeOf names what an ioctl changes; "" for nothing.
func changeOf(pid int) string {
	request := register(pid, registerSecond)
	if request == unix.BLKZEROOUT {
		return "BLKZEROOUT"
	}
	name := dmChanges[request&0xff]
	if name == "DM_DEV_SUSPEND" && !suspends(pid) {
		name = "DM_DEV_RESUME"
	}
	return name
}

// point notes that a point is reached, and kills if it is the one.
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
			if t.later != nil { // else it came too late
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

// kill kills as planned. t.mu is held.
func (t *tracer) kill(lvm int) {
	t.killed = true
	if t.plan.who != killDriver {
		_ = unix.Kill(lvm, unix.SIGKILL)
	}
	if t.plan.who != killLVM {
		_ = unix.Kill(t.victim, unix.SIGKILL)
	}
}

// Where a stopped process's registers are in struct user (Linux, arch/x86/include/asm/user_64.h). User-mode Linux knows
// PTRACE_PEEKUSER, and not every way to get them all at once.
const (
	registerNumber = 15 * 8 // orig_rax
	registerFirst  = 14 * 8 // rdi
	registerSecond = 13 * 8 // rsi
	registerThird  = 12 * 8 // rdx
)

// register is 0 of a process that was killed meanwhile.
func register(pid int, offset uintptr) uint64 {
	word := make([]byte, 8)
	if _, err := unix.PtracePeekUser(pid, offset, word); err != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(word)
}

// suspends reads the flags of a struct dm_ioctl, which tell suspending and resuming apart: DM_SUSPEND_FLAG is bit 1.
func suspends(pid int) bool {
	flags := make([]byte, 4)
	_, err := unix.PtracePeekData(pid, uintptr(register(pid, registerThird))+28, flags)
	return err == nil && flags[0]&2 != 0
}

// stopAtPoints makes this process, and all that it starts, stop at the system calls that may be points: writes to
// anything but the standard streams, ioctls that zero or are device-mapper's, and the end (seccomp(2); the offsets are
// those of struct seccomp_data).
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
		{Code: load, K: first}, // of a write
		{Code: atLeast, K: 3, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
		{Code: answer, K: unix.SECCOMP_RET_TRACE},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return fmt.Errorf("a filter of system calls: %w", errno)
	}
	return nil
}
