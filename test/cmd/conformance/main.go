// Command conformance runs Kubernetes' suite for storage drivers against the driver in a lab; see docs/development/conformance.md.
// It exits with 0 only if every claimed spec has passed, in this run or in one that it continues.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/test/conformance"
	"github.com/nodelvm/nodelvm/test/lab"
	"github.com/nodelvm/nodelvm/test/scenario"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	opt := conformance.Options{Out: os.Stdout}
	var only string
	var asIs bool
	c := &cobra.Command{
		Use:   "conformance",
		Short: "Run upstream's suite for storage drivers in the lab",
		Long: "Runs the claimed specs of upstream's suite that have not passed yet. FRESH=1 forgets what has passed;\n" +
			"KEEP=1 leaves the lab up, where a later run finds it.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if opt.Only, err = regexp.Compile(only); err != nil {
				return fmt.Errorf("--only: %w", err)
			}
			return run(c.Context(), opt, asIs)
		},
	}
	c.Flags().StringVar(&opt.Dir, "dir", "", "folder of the results and logs")
	c.Flags().StringVar(&only, "only", "", "run only what this regular expression finds in \"CLASS TEXT\"")
	c.Flags().IntVar(&opt.Jobs, "jobs", 2, "how many specs run at the same time")
	c.Flags().DurationVar(&opt.Limit, "limit", 15*time.Minute, "time for a spec")
	c.Flags().BoolVar(&asIs, "as-is", false, "install nothing: the lab is up, with the driver that is meant")
	_ = c.MarkFlagRequired("dir")
	return c
}

func run(ctx context.Context, opt conformance.Options, asIs bool) (err error) {
	if opt.Dir, err = filepath.Abs(opt.Dir); err != nil {
		return err
	}
	if os.Getenv("FRESH") != "" {
		if err := os.RemoveAll(opt.Dir); err != nil {
			return err
		}
	}
	if opt.Lab, err = lab.Open(""); err != nil {
		return err
	}
	defer func() {
		if os.Getenv("KEEP") == "" && !asIs {
			err = errors.Join(err, opt.Lab.Down(context.WithoutCancel(ctx)))
		}
	}()
	if !asIs {
		if err := install(ctx, opt); err != nil {
			return err
		}
	}
	summary, err := conformance.Run(ctx, opt)
	if len(summary.Specs) == 0 {
		return err
	}
	return errors.Join(err, report(summary))
}

// install starts the lab with all that the claimed specs need of the driver. A spec of group snapshots restores claims of 1 MiB, and csi-provisioner
// refuses a claim that is smaller than its snapshot, so the volume group of these specs has extents of that size.
func install(ctx context.Context, opt conformance.Options) error {
	env, err := scenario.Raise(ctx, opt.Lab, opt.Out)
	if err != nil {
		return err
	}
	if err := env.ApplyChart(ctx, "groupSnapshots.enabled=true", "ioLimits.enabled=true"); err != nil {
		return err
	}
	volumeGroups, err := env.VolumeGroups(ctx, conformance.GroupsNode)
	if err != nil {
		return err
	}
	for _, g := range volumeGroups {
		if _, err := env.RunOnNode(ctx, conformance.GroupsNode, "vgchange", "--physicalextentsize", "1m", g.Name); err != nil {
			return err
		}
	}
	return nil
}

// report prints the results, and fails unless every claimed spec has passed.
func report(s conformance.Summary) error {
	claimed := s.Claimed()
	missing := s.NotPassed(claimed)
	for _, paragraph := range missing {
		fmt.Printf("\n%s\n", paragraph)
	}
	fmt.Printf("\n%s\n%s\n%s\n", s.Table(), conformance.ExclusionTable(s.Specs), s.Numbers())
	if len(missing) > 0 {
		return fmt.Errorf("%d of %d claimed specs have not passed", len(missing), len(claimed))
	}
	return nil
}
