// Command demo starts a lab, installs nodelvm in it and runs the demo's scenarios. It exits with 0 only if every step succeeds.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nodelvm/nodelvm/test/lab"
	"github.com/nodelvm/nodelvm/test/scenario"
	"github.com/nodelvm/nodelvm/test/scenario/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "\nThe demo failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	start := time.Now()
	l, err := lab.Open("")
	if err != nil {
		return err
	}
	keep := os.Getenv("KEEP") != ""
	var env *scenario.Environment
	defer func() {
		if keep && env != nil {
			lookAround()
			return
		}
		if down := l.Down(context.WithoutCancel(ctx)); err == nil {
			err = down
		}
	}()
	if env, err = scenario.Raise(ctx, l, os.Stdout); err != nil {
		return err
	}
	for _, sc := range demo.Scenarios(keep) {
		if err := env.Run(ctx, sc); err != nil {
			fmt.Fprintln(os.Stderr, env.Diagnosis(ctx))
			return err
		}
	}
	fmt.Printf("\n%d steps held, in %s.\n", env.Reporter.Steps(), time.Since(start).Round(time.Second))
	return nil
}

func lookAround() {
	fmt.Print(`
The lab is still up. Continue with docs/tutorial.md, or look around:
  make lab ARGS=shell                  a shell with kubectl, helm and kubectl nodelvm for this cluster
    kubectl nodelvm nodes              in it: what the nodes have
    kubectl nodelvm dashboard          in it: the disks in a browser
  make lab ARGS=status                 what runs
  make lab ARGS="exec node-1 lvs"      any command on a node
  make lab ARGS=down                   when you have seen enough
`)
}
