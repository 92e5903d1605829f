package lvmcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/dm"
)

// mallocTunables keep lvm from giving memory back and asking for it again while it works on large metadata: with 1000
// volumes that is 250 calls of brk and 540 page faults an lvcreate (mallopt(3), M_TRIM_THRESHOLD and M_TOP_PAD). The pad is
// small, since lvm locks all of its memory, page by page, before it suspends a device.
const mallocTunables = "GLIBC_TUNABLES=glibc.malloc.trim_threshold=268435456:glibc.malloc.top_pad=1048576"

// maxReport and maxWords bound what is kept of a command's output.
const (
	maxReport = 256 << 20
	maxWords  = 4 << 10
	// MaxReports bounds the reports that run at the same time.
	MaxReports = 4
)

// Command runs the real lvm.
type Command struct {
	Path      string // "" for the one that is installed
	SystemDir string
	Devices   dm.DeviceDir
	Observe   func(lvm.Command)
	Reports   chan struct{} // holds one value for each report under way; its capacity bounds them
	Files     *CommandFiles // nil, or what commands that write have open
}

// Run implements Runner. The end of ctx ends a report at once for its caller, even if a hanging disk keeps lvm from
// ending; such commands cannot pile up.
func (c Command) Run(ctx context.Context, argv []string) ([]byte, error) {
	if argv[0] != "fullreport" {
		return nil, c.run(context.WithoutCancel(ctx), argv, (*exec.Cmd).Run)
	}
	select {
	case c.Reports <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("lvm fullreport: earlier ones have not ended: %w", ctx.Err())
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

// run starts one command and waits for its end. Nothing of our own environment reaches it: LVM_* variables change what
// lvm does.
func (c Command) run(ctx context.Context, argv []string, start func(*exec.Cmd) error) error {
	path, err := c.executable()
	if err != nil {
		return err
	}
	if err := c.Devices.Clear(GroupOf(argv)); err != nil {
		return fmt.Errorf("lvm %s: %w", argv[0], err)
	}
	words := &tail{max: maxWords}
	cmd := exec.CommandContext(ctx, path, argv...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = words, words
	cmd.Env = []string{"PATH=" + dm.CommandPath, "LC_ALL=C", "LVM_SUPPRESS_FD_WARNINGS=1", mallocTunables, "LVM_SYSTEM_DIR=" + c.SystemDir}
	if c.Files != nil {
		if f := c.Files.Of(GroupOf(argv)); f != nil {
			cmd.Stdin = f
		}
	}
	// A group of its own: a signal to ours (a terminal's, a supervisor's) must not end lvm in the middle of a commit.
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

// partialAdvice is what LVM says of a volume that lacks a disk. Who follows it reads and writes errors in the place of data.
const partialAdvice = "Use '--activationmode partial' to override."

// runError words how a command failed. A signal that ctx's end sent is ctx's error.
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

// runWithReport runs a command whose report comes on descriptor 3, apart from anything else that it may print.
func runWithReport(cmd *exec.Cmd) ([]byte, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	cmd.Env = append(cmd.Env, "LVM_REPORT_FD=3")
	cmd.ExtraFiles = []*os.File{w}
	err = cmd.Start()
	_ = w.Close() // lvm has its own
	if err != nil {
		return nil, err
	}
	// The pipe is read to its end before Wait, and on beyond the limit, or lvm would hang on a full pipe.
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

// tail is a writer that keeps the last bytes.
type tail struct {
	max  int
	kept []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.max; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.kept)) }
