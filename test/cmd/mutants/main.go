// Command mutants plants faults in a copy of the checkout, one at a time, and shows that tests fail for each. It is the proof that
// `make test` still finds what `make test-full` finds.
//
//	mutants [NAME...]
//
// Run it in the folder test of the checkout.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// mutant is a fault: one place in a file, and the packages whose tests find it.
type mutant struct {
	name     string
	file     string // below the root of the checkout
	rendered string // the same text of another file, which is made of it
	old, new string // old occurs once in the file
	module   string // the folder of the module of the packages
	packages []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) (err error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := copyCheckout(ctx, root, dir); err != nil {
		return err
	}
	var passed, survived int
	for _, m := range mutants {
		if len(names) > 0 && !slices.Contains(names, m.name) {
			continue
		}
		began := time.Now()
		by, err := m.try(ctx, dir)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("%s: %w", m.name, err)
		case by == "":
			survived++
			by = "NO TEST FAILS"
		default:
			passed++
		}
		fmt.Printf("%-34s %4.0f s  %s\n", m.name, time.Since(began).Seconds(), by)
	}
	fmt.Printf("%d passed, %d failed\n", passed, survived)
	if survived > 0 || passed == 0 {
		return fmt.Errorf("%d faults were not found", survived)
	}
	return nil
}

// copyCheckout copies the files that git knows, with the changes of the work tree.
func copyCheckout(ctx context.Context, root, dir string) error {
	script := `git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference --target-directory "$1"`
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", script, "bash", dir)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy the checkout: %w\n%s", err, out)
	}
	return nil
}

// try returns the first test that fails with the fault in place; "" if none does.
func (m mutant) try(ctx context.Context, dir string) (by string, err error) {
	for _, name := range m.files() {
		file := filepath.Join(dir, name)
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		faulty, err := m.plant(name, string(text))
		if err != nil {
			return "", err
		}
		write := func(text string) error { return os.WriteFile(file, []byte(text), 0o644) } //nolint:gosec // a source file
		if err := write(faulty); err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, write(string(text))) }()
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-trimpath", "-count=1", "-failfast", "-vet=off"}, m.packages...)...)
	cmd.Dir = filepath.Join(dir, m.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err == nil {
		return "", nil
	}
	return failedTest(string(out))
}

func (m mutant) files() []string {
	if m.rendered == "" {
		return []string{m.file}
	}
	return []string{m.file, m.rendered}
}

// plant returns the text of a file with the fault.
func (m mutant) plant(file, text string) (string, error) {
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, want once", file, m.old, n)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

var failLine = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failedTest returns the name of the first test that an output of go test calls failed. A package that does not compile is an error.
func failedTest(out string) (string, error) {
	if strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]") {
		return "", fmt.Errorf("it does not compile:\n%s", out)
	}
	if found := failLine.FindStringSubmatch(out); found != nil {
		return found[1], nil
	}
	if strings.Contains(out, "panic: ") {
		return "a panic", nil
	}
	return "", fmt.Errorf("go test failed without a failed test:\n%s", out)
}
