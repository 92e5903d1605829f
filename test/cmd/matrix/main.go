// Command matrix runs tests on each supported version of Kubernetes, and on nodes with the kernel and LVM of several Debian suites.
// It writes the results to docs/compatibility.md:
//
//	cd test && go run ./cmd/matrix [--on v1.34.4] [--part apiserver]
//
// It stores results in results.json next to this file, and skips parts that have passed on a commit of this history (FRESH=1 repeats them),
// so a new run continues an interrupted one. The first run of a version compiles it, which takes a quarter of an hour on two cores; the
// lab's cache keeps the result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nodelvm/nodelvm/test/hardwaretable"
	"github.com/nodelvm/nodelvm/test/lab"
)

// Files, relative to the folder test.
const (
	versionsFile = "../versions.env"
	resultsFile  = "cmd/matrix/results.json"
	pageFile     = "../docs/compatibility.md"
	eventsDir    = "../dist/test"
)

// suite runs a part. It removes the lab of a part that is interrupted, and a part may take longer on a slow machine.
const suite = "../bin/suite"

// interruptTime limits how long an interrupted part may take to remove its lab.
const interruptTime = 4 * time.Minute

// parts are the parts of the test suite that run on each version of Kubernetes, and nodeParts those that run on each kind of node.
var parts, nodeParts = []string{"apiserver", "scenarios"}, []string{"lvm"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	on := flag.String("on", "", "run this version of Kubernetes, or these Debian suites of the nodes (trixie/trixie), alone")
	part := flag.String("part", "", "run this part alone: "+strings.Join(append(slices.Clone(parts), nodeParts...), " or "))
	flag.Parse()
	if err := run(ctx, *on, *part); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

// job is a part that runs on a version of Kubernetes, or on nodes with a kernel and LVM of two Debian suites.
type job struct{ on, part string }

func (m matrix) jobs() (list []job) {
	for _, version := range m.kubernetes {
		for _, part := range parts {
			list = append(list, job{version, part})
		}
	}
	for _, suites := range m.nodes {
		for _, part := range nodeParts {
			list = append(list, job{suites, part})
		}
	}
	return list
}

func run(ctx context.Context, on, part string) error {
	m, err := readMatrix(versionsFile)
	if err != nil {
		return err
	}
	all, err := readResults(resultsFile)
	if err != nil {
		return err
	}
	hardware, err := hardwaretable.Read(hardwaretable.File)
	if err != nil {
		return err
	}
	wanted := slices.DeleteFunc(m.jobs(), func(j job) bool { return on != "" && on != j.on || part != "" && part != j.part })
	if len(wanted) == 0 {
		return fmt.Errorf("no part %q on %q: the versions are %s, the nodes %s", part, on, strings.Join(m.kubernetes, ", "), strings.Join(m.nodes, ", "))
	}
	head, err := commitOfCheckout(ctx)
	if err != nil {
		return err
	}
	if err := buildSuite(ctx); err != nil {
		return err
	}
	failed := []string{}
	for _, j := range wanted {
		if old := all.find(j.on, j.part); old != nil && old.isGood() && isInHistory(ctx, old.Commit) && os.Getenv("FRESH") == "" {
			continue
		}
		r, err := runPart(ctx, j)
		if err != nil {
			return err
		}
		r.Commit = head
		if !r.isGood() {
			failed = append(failed, j.on+" "+j.part)
		}
		all.put(r)
		if err := errors.Join(all.write(resultsFile), os.WriteFile(pageFile, []byte(page(m, all, hardware)), 0o644)); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s (%s has the tests)", strings.Join(failed, ", "), resultsFile)
	}
	return os.WriteFile(pageFile, []byte(page(m, all, hardware)), 0o644)
}

// buildSuite compiles suite. `go run` would end without it when it is terminated.
func buildSuite(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", suite, "./cmd/suite")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build ./cmd/suite: %w\n%s", err, out)
	}
	return nil
}

// runPart runs a part. Failed tests are a result; a part that runs no test, or that fails without a failed test, is an error.
func runPart(ctx context.Context, j job) (result, error) {
	fmt.Printf("%s: %s\n", j.on, j.part)
	cmd := exec.CommandContext(ctx, suite, j.part)
	setting := lab.EnvKubernetes
	if slices.Contains(nodeParts, j.part) {
		setting = lab.EnvSuites
	}
	cmd.Env = append(os.Environ(), setting+"="+j.on)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt from the terminal reaches it once
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = interruptTime
	began := time.Now()
	failure := cmd.Run()
	if ctx.Err() != nil {
		return result{}, ctx.Err()
	}
	r, err := readEvents(filepath.Join(eventsDir, j.part+"-*.json"))
	if err != nil {
		return result{}, errors.Join(failure, err)
	}
	if r.Passed+len(r.Failed) == 0 || failure != nil && len(r.Failed) == 0 {
		return result{}, fmt.Errorf("%s on %s did not run to its end: %w", j.part, j.on, errors.Join(failure, errors.New("no test failed")))
	}
	r.On, r.Part = j.on, j.part
	r.Date, r.Minutes = began.UTC().Format(time.DateOnly), int(time.Since(began).Minutes()+1)
	return r, nil
}

// commitOfCheckout returns the commit that the tests run on. It refuses changes, but for the files that this command writes.
func commitOfCheckout(ctx context.Context) (string, error) {
	changes, err := git(ctx, "status", "--porcelain", "--", "..", ":(exclude)"+resultsFile, ":(exclude)"+pageFile)
	if err != nil {
		return "", err
	}
	if changes != "" {
		return "", fmt.Errorf("a result names the commit that it is of, and these files have changes: commit them first\n%s", changes)
	}
	return git(ctx, "rev-parse", "--short=12", "HEAD")
}

// isInHistory returns whether HEAD has the commit. If not, no user can look up what was tested.
func isInHistory(ctx context.Context, commit string) bool {
	_, err := git(ctx, "merge-base", "--is-ancestor", commit, "HEAD")
	return err == nil
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
