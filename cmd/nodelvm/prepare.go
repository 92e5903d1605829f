package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node"
)

// prepareSystemDir is where this command's own lvm.conf is written, apart from that of a driver that runs.
const prepareSystemDir = "/run/nodelvm/prepare"

// prepareOptions are the flags of `nodelvm prepare`.
type prepareOptions struct {
	config     string
	nodeName   string
	dryRun     bool
	bestEffort bool
	wait       time.Duration
	lockDir    string
	stateDir   string
}

func prepareCommand() *cobra.Command {
	var o prepareOptions
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Make this node's declared volume groups from blank disks, or enlarge them",
		Long: `Make the volume groups that a file declares, or enlarge them, from disks that are proven blank, and say for each
device of the node what was done with it, or why it was left alone. What is done already is left as it is.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := prepare(cmd.Context(), o, cmd.OutOrStdout())
			if err != nil && o.bestEffort {
				cmd.PrintErrln("nodelvm: not all volume groups are as they are declared; the driver starts for the others:", err)
				return nil
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", "", "YAML or JSON file that declares the volume groups (see docs/howto/volume-groups.md)")
	flags.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "this node's name, for the tag by which other nodes know that a volume group is in use (default: the environment's NODE_NAME)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print what would be done, and change nothing")
	flags.BoolVar(&o.bestEffort, "best-effort", false, "end with status 0 also where something could not be done: a node keeps the groups that it has")
	flags.DurationVar(&o.wait, "wait", time.Minute, "how long to wait for a driver that still works on this node")
	flags.StringVar(&o.lockDir, "lock-dir", "/run/lock/lvm", "the host's LVM lock directory")
	flags.StringVar(&o.stateDir, "state-dir", "/var/lib/nodelvm", "host directory for the backups of LVM's metadata")
	_ = cmd.MarkFlagRequired("config")
	return cmd
}

// prepare runs once.
func prepare(ctx context.Context, o prepareOptions, out io.Writer) error {
	declared, err := readDeclarations(o.config)
	if err != nil {
		return err
	}
	log, err := newLogger(os.Stderr, "warn", "console")
	if err != nil {
		return err
	}
	host, err := lvm.NewHost(lvm.Config{
		SystemDir: prepareSystemDir, Node: o.nodeName, LockDir: o.lockDir, BackupDir: filepath.Join(o.stateDir, "backup"), Log: log,
	})
	if err != nil {
		return err
	}
	defer func() { _ = host.Close(context.WithoutCancel(ctx)) }()
	if !o.dryRun {
		waiting, cancel := context.WithTimeout(ctx, o.wait)
		defer cancel()
		if err := host.Alone(waiting); err != nil {
			return fmt.Errorf("%w; it looks for new disks by itself, if it was started with --volume-groups", err)
		}
	}
	report, err := host.Prepare(ctx, lvm.Preparation{Declared: declared, DryRun: o.dryRun, Signatures: node.Signatures})
	if err != nil {
		return err
	}
	_, _ = io.WriteString(out, report.String())
	return errors.Join(failures(report)...)
}

func failures(report lvm.PrepareReport) (errs []error) {
	for _, g := range report.Failed() {
		errs = append(errs, fmt.Errorf("volume group %s: %w", g.Name, g.Err))
	}
	return errs
}
