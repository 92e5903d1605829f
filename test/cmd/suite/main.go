// Command suite runs parts of the test suite and reports on them. While it works it prints which parts run and which are left, and
// why a part failed. At the end it prints a table of the parts with their processor time, and the slowest tests.
//
// Each part has its own process, which adopts whatever the part starts (see adopt.go). When the part ends or is interrupted, it
// ends what is left, and stops the part's labs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

const usage = `usage: suite [--jobs N] PART...
Runs test/part.sh PART for each part, in this order, N at a time, and no two that start nodes at the same time on fewer than four
processors. Run it in the folder test of the checkout.
`

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "adopt":
			os.Exit(adopt(os.Args[2:]))
		case "tool":
			os.Exit(runTool(os.Args[2:]))
		}
	}
	jobs := flag.Int("jobs", max(2, runtime.NumCPU()), "number of parts that run at the same time")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage); flag.PrintDefaults() }
	flag.Parse()
	if flag.NArg() == 0 || *jobs < 1 {
		flag.Usage()
		os.Exit(2)
	}
	// A closed pipe interrupts the run, too: its parts must not outlive it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	if err := run(ctx, *jobs, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "\nsuite:", err)
		os.Exit(1)
	}
}

// startsNodes are the parts with lab nodes, each of which keeps a processor busy.
var startsNodes = map[string]bool{"nodes": true, "cluster": true, "lab": true, "lvm": true, "power": true, "hardware": true, "e2e": true}

func run(ctx context.Context, jobs int, names []string) error {
	dir, err := filepath.Abs("../dist/test")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	labs, err := os.MkdirTemp("", "nodelvm-test-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(labs) }() // each part removes its own folder in it
	flags, err := toolFlags(ctx, self)
	if err != nil {
		return err
	}
	slowness := slownessOfMachine()
	fmt.Printf("This machine is %.1f times as slow as the one that the tests' time limits are for.\n", slowness)
	parts := make([]*part, len(names))
	for i, name := range names {
		p := newPart(dir, name, []string{self, "adopt", filepath.Join(labs, name), filepath.Join(dir, name+".usage"), "./part.sh", name})
		p.env = append(os.Environ(), wait.Variable+fmt.Sprintf("=%.2f", slowness), "GOFLAGS="+flags, toolVariable+"="+filepath.Join(dir, name+".tools"))
		p.nodes = startsNodes[name]
		parts[i] = p
	}
	s := &schedule{parts: parts, out: os.Stdout, interval: 10 * time.Second, began: time.Now(), labs: max(1, runtime.NumCPU()/2)}
	s.run(ctx, jobs)
	if err := s.table(); err != nil {
		return err
	}
	if failed := s.failed(); len(failed) > 0 {
		return errors.Join(context.Cause(ctx), fmt.Errorf("%d of %d parts failed: %s", len(failed), len(parts), strings.Join(failed, ", ")))
	}
	return nil
}
