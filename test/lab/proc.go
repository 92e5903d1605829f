package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// daemon is a process that continues after the command that starts it.
type daemon struct {
	name string   // unique in the lab; names the record and the log
	argv []string // absolute path first
	env  []string // in addition to the caller's own
	core int      // CPU to pin to; -1: none
}

// process is one line of the process table.
type process struct {
	pid     int
	session int    // its session's number, which is the pid of the session's leader
	start   uint64 // clock ticks after boot (proc(5), stat field 22): with the pid, unique
	zombie  bool   // it has ended, with all its threads, and waits for its parent
}

// startDaemon starts d in the lab's network namespace, in its own session, with its output in the log folder, and records it. If
// this process is killed before it writes the record, Down finds the child by its namespace.
func (l *Lab) startDaemon(d daemon) error {
	log, err := os.OpenFile(l.logFile(d.name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(d.argv[0], d.argv[1:]...) //nolint:noctx // it must outlive the caller's context
	cmd.Env = append(os.Environ(), d.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := l.inNamespace(d.core, cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	go func() { _ = cmd.Wait() }() // reap it if it ends before this process
	return errors.Join(setSessionPriority(cmd.Process.Pid), l.record(d.name, cmd.Process.Pid))
}

// setSessionPriority gives the session of pid the nice value of this process. A kernel with autogroups divides the processors among
// sessions, and a process's own nice value counts only within its session (sched(7)). Without the session's value, a node of a test
// with low priority takes as much as one of a test with high priority.
func setSessionPriority(pid int) error {
	nice, err := niceValue()
	if err != nil {
		return err
	}
	err = os.WriteFile(autogroupFile(pid), []byte(strconv.Itoa(nice)), 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) { // no autogroups, or the process has ended
		return nil
	}
	return err
}

// niceValue returns the nice value of this process. The system call returns 20 minus the value.
func niceValue() (int, error) {
	raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	return 20 - raw, err
}

func autogroupFile(pid int) string { return fmt.Sprintf("/proc/%d/autogroup", pid) }

// record stores pid as the session leader called name.
func (l *Lab) record(name string, pid int) error {
	p, err := readProcess(pid)
	if errors.Is(err, fs.ErrNotExist) {
		p = process{pid: pid} // it has ended already; the caller's wait reports that
	} else if err != nil {
		return err
	}
	return os.WriteFile(l.recordFile(name), fmt.Appendf(nil, "%d %d\n", p.pid, p.start), 0o644)
}

func (l *Lab) recordFile(name string) string { return filepath.Join(l.dir, "run", name+".pid") }

// recorded returns the recorded session leader called name; found is false without a record, or with an incomplete one.
func (l *Lab) recorded(name string) (leader process, found bool) {
	b, err := os.ReadFile(l.recordFile(name))
	if err != nil {
		return process{}, false
	}
	n, err := fmt.Sscan(string(b), &leader.pid, &leader.start)
	return leader, err == nil && n == 2 && leader.pid > 1
}

// alive reports whether the recorded leader called name still runs.
func (l *Lab) alive(name string) bool {
	leader, found := l.recorded(name)
	if !found {
		return false
	}
	p, err := readProcess(leader.pid)
	return err == nil && p.start == leader.start && !p.zombie
}

// killDaemon kills the whole session of name, and waits until it is gone.
func (l *Lab) killDaemon(name string, reap time.Duration) error {
	leader, found := l.recorded(name)
	if found {
		if l.alive(name) {
			_ = syscall.Kill(-leader.pid, syscall.SIGKILL) // the leader's process group at once; other groups follow
		}
		if err := killUntilGone(name, reap, func(p process) bool { return inSession(p, leader) }); err != nil {
			return err
		}
	}
	return ignoreMissing(os.Remove(l.recordFile(name)))
}

// inSession reports whether p belongs to the session that leader opened. The kernel does not reuse a pid while a session with that
// number exists, so a member of a later session with the same number has another start time.
func inSession(p, leader process) bool {
	if p.pid == leader.pid {
		return p.start == leader.start
	}
	return p.session == leader.pid && p.start >= leader.start
}

// killLab kills all processes of the lab: the recorded sessions, all others in its network namespace, and builds with its mark. It
// never selects a process by its name.
func (l *Lab) killLab() error {
	records, err := filepath.Glob(l.recordFile("*"))
	if err != nil {
		return err
	}
	var leaders []process
	for _, r := range records {
		if leader, found := l.recorded(strings.TrimSuffix(filepath.Base(r), ".pid")); found {
			leaders = append(leaders, leader)
		}
	}
	ns, err := l.namespaceID()
	if err != nil {
		return err
	}
	err = killUntilGone("the lab", 3*time.Second, func(p process) bool {
		for _, leader := range leaders {
			if inSession(p, leader) {
				return true
			}
		}
		return p.pid != os.Getpid() && (ns != "" && namespaceOf(p) == ns || l.builds(p))
	})
	if err != nil {
		return err
	}
	for _, r := range records {
		err = errors.Join(err, os.Remove(r))
	}
	return err
}

// namespaceOf returns the kernel's name of p's network namespace; "" if p has ended or the name is not readable.
func namespaceOf(p process) string {
	id, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.pid))
	if err != nil {
		return ""
	}
	return id
}

// builds reports whether p is part of a build of this lab.
func (l *Lab) builds(p process) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	return err == nil && strings.Contains("\x00"+string(env), "\x00"+l.buildMark()+"\x00")
}

// killUntilGone sends SIGKILL to all processes that ours selects until none is left. It waits up to reap for the parents of zombies
// to reap them.
func killUntilGone(what string, reap time.Duration, ours func(process) bool) error {
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		all, err := processes()
		if err != nil {
			return err
		}
		left, dead := 0, 0
		for _, p := range all {
			switch {
			case !ours(p):
			case p.zombie:
				dead++
			default:
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
				left++
			}
		}
		if left == 0 && (dead == 0 || time.Since(begin) >= reap) {
			return nil
		}
		if time.Since(begin) > 20*time.Second {
			return fmt.Errorf("%d processes of %s still live 20 s after SIGKILL", left, what)
		}
	}
}

// processes reads the process table.
func processes() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// readProcess reads /proc/PID/stat. For a process that has ended the error is fs.ErrNotExist.
func readProcess(pid int) (process, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		return process{}, fs.ErrNotExist
	}
	if err != nil {
		return process{}, err
	}
	return parseStat(string(b))
}

// parseStat parses a line of /proc/PID/stat (proc(5)). The command's name, in parentheses, may contain spaces and parentheses.
func parseStat(line string) (process, error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return process{}, fmt.Errorf("not a line of /proc/PID/stat: %q", line)
	}
	rest := strings.Fields(line[end+1:]) // begins with field 3, the state
	if len(rest) < 20 {
		return process{}, fmt.Errorf("/proc/PID/stat has only %d fields: %q", len(rest)+2, line)
	}
	pid, err1 := strconv.Atoi(strings.TrimSpace(line[:open]))
	session, err2 := strconv.Atoi(rest[3])
	start, err3 := strconv.ParseUint(rest[19], 10, 64)
	threads, err4 := strconv.Atoi(rest[17])
	// The kernel shows a process whose first thread has ended as a zombie while another one still writes to a disk.
	ended := (rest[0] == "Z" || rest[0] == "X") && threads <= 1
	return process{pid, session, start, ended}, errors.Join(err1, err2, err3, err4)
}

// ignoreMissing returns nil for fs.ErrNotExist.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// killGroup gives cmd a process group, and kills the group when cmd's context ends. exec.CommandContext kills cmd alone; its
// children then continue, and Wait waits for those that hold a pipe of its output.
func killGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
