// Command suite runs parts of the test suite, by default as many concurrently as the machine has cores, but at least two. While it
// works it prints which parts run and which are left, and the end of the log of a part that fails; at the end it prints a table of
// all parts.
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
)

// foreground is the part that keeps the normal priority: it takes longest, and its time limits are the tightest. The other parts
// get the processor time that it does not use.
const foreground = "e2e"

const usage = `usage: suite [--jobs N] PART...
Runs test/part.sh PART for each part, in this order, N at a time. Run it in the folder test of the checkout.
`

func main() {
	jobs := flag.Int("jobs", max(2, runtime.NumCPU()), "number of parts that run at the same time")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage); flag.PrintDefaults() }
	flag.Parse()
	if flag.NArg() == 0 || *jobs < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *jobs, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "\nsuite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, jobs int, names []string) error {
	dir, err := filepath.Abs("../dist/test")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	parts := make([]*part, len(names))
	for i, name := range names {
		argv := []string{"nice", "-n", "5", "./part.sh", name}
		if name == foreground {
			argv = argv[3:]
		}
		parts[i] = &part{name: name, argv: argv, log: filepath.Join(dir, name+".log")}
	}
	s := &schedule{parts: parts, out: os.Stdout, interval: 10 * time.Second, began: time.Now()}
	s.run(ctx, jobs)
	if err := s.table(dir); err != nil {
		return err
	}
	if failed := s.failed(); len(failed) > 0 {
		return errors.Join(context.Cause(ctx), fmt.Errorf("%d of %d parts failed: %s", len(failed), len(parts), strings.Join(failed, ", ")))
	}
	return nil
}
