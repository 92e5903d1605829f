package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// toolVariable names the file to which each tool of Go adds a line with its name and processor time.
const toolVariable = "NODELVM_TEST_TOOLS"

// toolFlags returns GOFLAGS with which the go command runs its compiler, linker and vet through `suite tool`. Go's cache does not
// depend on it.
func toolFlags(ctx context.Context, self string) (string, error) {
	now, err := exec.CommandContext(ctx, "go", "env", "GOFLAGS").Output() // from the environment or from go's own file
	return strings.TrimSpace(string(now)) + fmt.Sprintf(" '-toolexec=%s tool'", self), err
}

// runTool runs a tool of Go and returns its exit status.
func runTool(argv []string) int {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // ends with the go command
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		addToolTime(os.Getenv(toolVariable), filepath.Base(argv[0]), processorTime(*usage))
	}
	return cmd.ProcessState.ExitCode()
}

// addToolTime adds a line to the file. A lost line only makes the report less exact.
func addToolTime(file, tool string, d time.Duration) {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(f, "%s %d\n", tool, d.Microseconds())
	_ = f.Close()
}

// toolTime returns the sum of a file of addToolTime.
func toolTime(file string) (sum time.Duration, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // nothing was compiled
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var tool string
		var microseconds int64
		if _, err := fmt.Sscan(lines.Text(), &tool, &microseconds); err != nil {
			return sum, fmt.Errorf("%s: %w", file, err)
		}
		sum += time.Duration(microseconds) * time.Microsecond
	}
	return sum, nil
}
