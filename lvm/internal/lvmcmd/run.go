package lvmcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/tail"
)

// mallocTunables keep lvm from returning memory and requesting it again while it processes large metadata: with 1000 volumes an
// lvcreate has 250 calls of brk and 540 page faults (mallopt(3), M_TRIM_THRESHOLD and M_TOP_PAD). The pad is small, since lvm
// locks all of its memory, page by page, before it suspends a device.
const mallocTunables = "GLIBC_TUNABLES=glibc.malloc.trim_threshold=268435456:glibc.malloc.top_pad=1048576"

const (
	// maxReport limits the size of a report, in bytes.
	maxReport = 256 << 20
	// MaxReports limits concurrent reports.
	MaxReports = 4
)

// Command runs the real lvm.
type Command struct {
	Path      string // "": the installed one
	SystemDir string
	Devices   dm.DeviceDir
	Observe   func(lvm.Command)
	Reports   chan struct{} // one value for each running report; its capacity limits them
	Files     *CommandFiles // open in commands that write; may be nil
}

// Run implements lvm.Runner. When ctx ends, the caller of a report returns at once, even if an unresponsive disk keeps lvm from
// ending; such processes cannot accumulate.
func (c Command) Run(ctx context.Context, argv []string) ([]byte, error) {
	if argv[0] != "fullreport" {
		return nil, c.run(context.WithoutCancel(ctx), argv, (*exec.Cmd).Run)
	}
	select {
	case c.Reports <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot run lvm fullreport: earlier reports still run, probably because a disk is unresponsive: %w", ctx.Err())
	}
	type answer struct {
		report []byte
		err    error
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-c.Reports }()
		var report []byte
		err := c.run(ctx, argv, func(cmd *exec.Cmd) (err error) {
			report, err = runWithReport(cmd)
			return err
		})
		done <- answer{report, err}
	}()
	select {
	case a := <-done:
		return a.report, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("lvm fullreport: %w", ctx.Err())
	}
}

// run starts one command and waits for its end. The command inherits nothing of the driver's environment: LVM_* variables
// change what lvm does.
func (c Command) run(ctx context.Context, argv []string, start func(*exec.Cmd) error) error {
	path, err := c.executable()
	if err != nil {
		return err
	}
	if err := c.Devices.Clear(GroupOf(argv)); err != nil {
		return fmt.Errorf("lvm %s: %w", argv[0], err)
	}
	words := &tail.Buffer{}
	cmd := exec.CommandContext(ctx, path, argv...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = words, words
	cmd.Env = []string{"PATH=" + dm.CommandPath, "LC_ALL=C", "LVM_SUPPRESS_FD_WARNINGS=1", mallocTunables, "LVM_SYSTEM_DIR=" + c.SystemDir}
	if c.Files != nil {
		if f := c.Files.Of(GroupOf(argv)); f != nil {
			cmd.Stdin = f
		}
	}
	// Another process group: a signal to the driver's (a terminal's, a supervisor's) must not end lvm during a commit.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	if makesPool(argv) {
		err = withHostname(poolHost, func() error { return start(cmd) })
	} else {
		err = start(cmd)
	}
	done := lvm.Command{Name: argv[0], Args: argv[1:], Duration: time.Since(began), ExitCode: -1}
	if cmd.ProcessState != nil {
		done.ExitCode = cmd.ProcessState.ExitCode()
	}
	if c.Observe != nil {
		c.Observe(done)
	}
	return runError(ctx, argv, done.ExitCode, words.String(), err)
}

func (c Command) executable() (string, error) {
	if c.Path != "" {
		return c.Path, nil
	}
	return dm.LookPath("lvm")
}

// partialAdvice is LVM's advice for a volume with a missing disk. An admin who follows it reads and writes errors instead of
// data.
const partialAdvice = "Use '--activationmode partial' to override."

// runError formats the failure of a command. If ctx's end caused the signal, the error is ctx's.
func runError(ctx context.Context, argv []string, code int, words string, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("lvm %s: %w", argv[0], ctx.Err())
	case !errors.As(err, &exit):
		return fmt.Errorf("lvm %s: %w", argv[0], err)
	case code < 0:
		words = strings.TrimSpace(words + " " + exit.String())
	}
	words = strings.TrimSpace(strings.ReplaceAll(words, partialAdvice, ""))
	return &lvm.ExitError{Argv: argv, Code: code, Stderr: words}
}

// runWithReport runs a command that writes its report to descriptor 3, apart from its other output.
func runWithReport(cmd *exec.Cmd) ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	cmd.Env = append(cmd.Env, "LVM_REPORT_FD=3")
	cmd.ExtraFiles = []*os.File{w}
	err = cmd.Start()
	_ = w.Close() // lvm has a copy
	if err != nil {
		return nil, err
	}
	// Read the pipe to its end before Wait, even beyond the limit: lvm would block on a full pipe.
	var report bytes.Buffer
	_, readErr := io.Copy(&report, io.LimitReader(r, maxReport))
	extra, _ := io.Copy(io.Discard, r)
	if err := cmd.Wait(); err != nil {
		return nil, err
	}
	if extra > 0 {
		return nil, fmt.Errorf("its report is longer than %d MiB", maxReport>>20)
	}
	return report.Bytes(), readErr
}

// poolHost is the host name that LVM sees while it creates a thin pool. LVM records it on each volume (lvs -o lv_host). It
// creates the first, which becomes its spare for pool metadata, without a tag and with a name of its choice. If lvm is killed
// then, only the host name proves that no user has the volume.
const poolHost = "pool.nodelvm.io"

// makesPool reports whether a command is one of poolArgs.
func makesPool(argv []string) bool {
	i := slices.Index(argv, "--type")
	return argv[0] == "lvcreate" && i >= 0 && i+1 < len(argv) && argv[i+1] == "thin-pool"
}

// withHostname runs do on a thread that, with the processes that it starts, has another host name; no other thread has it.
func withHostname(name string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()              // never unlocked: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() { // except the process's first thread, which cannot end
			defer runtime.UnlockOSThread()
			done <- withHostname(name, do) // on another thread, as this one is locked
			return
		}
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			done <- fmt.Errorf("cannot give lvm a separate host name: unshare: %w", err)
			return
		}
		if err := unix.Sethostname([]byte(name)); err != nil {
			done <- fmt.Errorf("cannot give lvm a separate host name: sethostname: %w", err)
			return
		}
		done <- do()
	}()
	return <-done
}
