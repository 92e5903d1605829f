package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// built compiles the suite once, to a folder that TestMain removes.
var built = sync.OnceValues(func() (string, error) {
	suite := filepath.Join(folder, "suite")
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-trimpath", "-o", suite, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return suite, nil
})

var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "suite-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// checkout returns a folder like test/ of a checkout, whose parts run the script, and the suite to run there.
func checkout(t *testing.T, script string) (dir, suite string) {
	t.Helper()
	suite, err := built()
	must(t, err)
	dir = filepath.Join(t.TempDir(), "test")
	must(t, os.Mkdir(dir, 0o755))
	if err := os.WriteFile(filepath.Join(dir, "part.sh"), []byte("#!/bin/sh\n"+script), 0o755); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return dir, suite
}

// sleeper is a command whose processes sleepers finds. Two of the three leave the session of their part, as the lab's do.
func sleeper(seconds string) string {
	return fmt.Sprintf("setsid sleep %[1]s & (setsid setsid sleep %[1]s &) & touch began; sleep %[1]s", seconds)
}

func sleepers(t *testing.T, seconds string) (n int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, file := range lines {
		if text, err := os.ReadFile(file); err == nil && string(text) == "sleep\x00"+seconds+"\x00" {
			n++
		}
	}
	return n
}

// TestInterruptedRunLeavesNothing: the suite and its parts end, with all processes that left their sessions, whoever interrupts it.
func TestInterruptedRunLeavesNothing(t *testing.T) {
	interrupts := map[string]func(suite *os.Process, output io.Closer) error{
		"interrupt":   func(suite *os.Process, _ io.Closer) error { return suite.Signal(syscall.SIGINT) },
		"termination": func(suite *os.Process, _ io.Closer) error { return suite.Signal(syscall.SIGTERM) },
		"kill":        func(suite *os.Process, _ io.Closer) error { return suite.Kill() },
		"closed pipe": func(_ *os.Process, output io.Closer) error { return output.Close() },
	}
	seconds := 97000
	for name, interrupt := range interrupts {
		seconds++
		t.Run(name, func(t *testing.T) {
			time := fmt.Sprint(seconds)
			dir, suite := checkout(t, sleeper(time))
			cmd := exec.CommandContext(t.Context(), suite, "a", "b")
			cmd.Dir = dir
			output, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			go func() { _, _ = io.Copy(io.Discard, output) }()
			wait.For(t, 30*second, "both parts run", func() bool { return sleepers(t, time) == 6 })
			must(t, interrupt(cmd.Process, output))
			wait.For(t, 60*second, "no process is left", func() bool { return sleepers(t, time) == 0 })
			if err := cmd.Wait(); err == nil {
				t.Error("the interrupted suite succeeded")
			}
		})
	}
}

const second = time.Second

// TestProcessorTime: the table counts processes that left the session of their part, and those of Go's tools.
func TestProcessorTime(t *testing.T) {
	dir, suite := checkout(t, `mkdir -p m && cd m && printf 'module m\n' >go.mod && printf 'package main\nfunc main() { println("%s") }\n' $$-$(date +%N) >main.go && go build . && (setsid sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done' &)
sleep 3`)
	cmd := exec.CommandContext(t.Context(), suite, "a")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var all, compiling float64
	at := strings.Index(string(out), "\nCPU ")
	if at < 0 {
		t.Fatalf("no sum in\n%s", out)
	}
	if _, err := fmt.Sscanf(string(out)[at:], "\nCPU %f s, of which compiling %f s", &all, &compiling); err != nil || compiling <= 0 || all <= compiling {
		t.Errorf("%v, %v of %v s, want some for compiling, and more beside it:\n%s", err, compiling, all, out)
	}
}
