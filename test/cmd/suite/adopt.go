package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/test/lab"
)

// graceTime is how long an interrupted command has to end by itself.
const graceTime = 20 * time.Second

// adopt runs a command, and returns its exit status when nothing is left of it: suite adopt LABS USAGE COMMAND... It is the reaper of
// all processes that the command starts (PR_SET_CHILD_SUBREAPER), those that leave its session too. So it knows the processor time of
// all of them, which it writes to the file USAGE, and can end them. The command keeps its labs in the folder LABS; adopt stops them
// and removes the folder.
//
// The first signal, or the end of adopt's parent, interrupts the command.
func adopt(args []string) int {
	if len(args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: suite adopt LABS USAGE COMMAND [ARGUMENT...]")
		return 2
	}
	labs, usage, command := args[0], args[1], args[2:]
	status, err := adoptAll(labs, command)
	keep := ""
	if status != 0 || err != nil {
		keep = strings.TrimSuffix(usage, ".usage") + ".logs"
	}
	err = errors.Join(err, stopLabs(labs, keep), endChildren(), writeUsage(usage))
	_ = os.Remove(filepath.Dir(labs)) // of a suite that was killed; it is not empty while other parts run
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = max(status, 1)
	}
	return status
}

func adoptAll(labs string, command []string) (int, error) {
	if err := errors.Join(
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0),
	); err != nil {
		return 1, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if os.Getppid() == 1 {
		return 1, errors.New("the suite ended before this part began")
	}
	env := append(os.Environ(), "NODELVM_TEST_LABS="+labs)
	pid, err := syscall.ForkExec(command[0], command, &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		return 1, fmt.Errorf("%s: %w", command[0], err)
	}
	go func() {
		<-signals
		_ = syscall.Kill(-pid, syscall.SIGINT)
		time.Sleep(graceTime)
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}()
	return reapUntil(pid)
}

// reapUntil reaps children until pid ends, and returns its exit status.
func reapUntil(pid int) (int, error) {
	for {
		var status syscall.WaitStatus
		got, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait for process %d: %w", pid, err)
		case got == pid && status.Exited():
			return status.ExitStatus(), nil
		case got == pid:
			return 1, fmt.Errorf("the command was ended by signal %s", status.Signal())
		}
	}
}

// stopLabs stops each lab in the folder and removes the folder. Without it, there is no lab. It copies the logs of the labs to the folder
// keep, unless that is "".
func stopLabs(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var errs []error
	for _, e := range entries {
		l, err := lab.Open(filepath.Join(dir, e.Name()))
		if err == nil {
			err = l.Down(ctx)
			if keep != "" {
				err = errors.Join(err, os.CopyFS(filepath.Join(keep, e.Name()), os.DirFS(l.Logs())))
			}
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// endChildren kills and reaps all processes that the command left. Each child that ends hands its own children on, until none is
// left.
func endChildren() error {
	for end := time.Now().Add(graceTime); ; time.Sleep(10 * time.Millisecond) {
		var status syscall.WaitStatus
		switch _, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); {
		case errors.Is(err, syscall.ECHILD):
			return nil
		case err != nil && !errors.Is(err, syscall.EINTR):
			return err
		}
		children, err := childrenOf(os.Getpid())
		if err != nil {
			return err
		}
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes %v still live %s after SIGKILL", children, graceTime)
		}
	}
}

func childrenOf(pid int) (children []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ") // "S PARENT ..."
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			children = append(children, child)
		}
	}
	return children, err
}

// writeUsage writes the processor time of all reaped children, in seconds.
func writeUsage(file string) error {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		return err
	}
	text, err := json.Marshal(processorTime(usage).Seconds())
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644) //nolint:gosec // a report
}

func processorTime(usage syscall.Rusage) time.Duration {
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
