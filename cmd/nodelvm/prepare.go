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

	"github.com/nodelvm/nodelvm/internal/logs"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

// prepareSystemDir is the directory of this command's lvm.conf; a running driver has another one.
const prepareSystemDir = "/run/nodelvm/prepare"

// prepareOptions are the flags of `nodelvm prepare`.
type prepareOptions struct {
	config     string
	nodeName   string
	dryRun     bool
	bestEffort bool
	wait       time.Duration
	lockDir    string
	accepted   acceptedOptions
}

func prepareCommand() *cobra.Command {
	var o prepareOptions
	cmd := &cobra.Command{
		Use:   "prepare",
		Short: "Create or extend the declared volume groups of this node from blank disks",
		Long: `Create or extend the volume groups that a file declares, from disks that are proven blank, and print for each device of
the node what was done, or why the device was skipped. A second run changes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := prepare(cmd.Context(), o, cmd.OutOrStdout())
			if err != nil && o.bestEffort {
				cmd.PrintErrln("nodelvm: cannot set up all declared volume groups; the driver starts with the others:", err)
				return nil
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "volume-groups-file", "", "YAML or JSON file that declares the volume groups (see docs/howto/volume-groups.md); required")
	flags.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node, for the tag nodelvm.node of each changed volume group (default: environment variable NODE_NAME)")
	flags.BoolVar(&o.dryRun, "dry-run", false, "print the plan and change nothing")
	flags.BoolVar(&o.bestEffort, "best-effort", false, "exit with status 0 even if a volume group cannot be created or extended")
	flags.DurationVar(&o.wait, "lock-timeout", time.Minute, "time to wait for a running driver on this node to end")
	flags.StringVar(&o.lockDir, "lock-dir", "/run/lock/lvm", "directory of the host's LVM locks (lvm.conf: locking_dir)")
	o.accepted.bind(flags)
	_ = cmd.MarkFlagRequired("volume-groups-file")
	return cmd
}

func prepare(ctx context.Context, o prepareOptions, out io.Writer) error {
	declared, err := readDeclarations(o.config)
	if err != nil {
		return err
	}
	log, err := logs.New(os.Stderr, "warn", "console")
	if err != nil {
		return err
	}
	h, err := host.NewHost(lvm.Config{
		SystemDir: prepareSystemDir, Node: o.nodeName, LockDir: o.lockDir, BackupDir: filepath.Join(o.accepted.stateDir, "backup"), Log: log,
		Accepted: o.accepted.onAnyMachine(), AdminCLI: o.dryRun,
	})
	if err != nil {
		return err
	}
	defer func() { _ = h.Close(context.WithoutCancel(ctx)) }()
	if !o.dryRun {
		waiting, cancel := context.WithTimeout(ctx, o.wait)
		defer cancel()
		if err := h.AcquireInstanceLock(waiting); err != nil {
			return fmt.Errorf("%w; that driver scans for new disks itself if it runs with --volume-groups-file", err)
		}
	}
	report, err := h.Prepare(ctx, lvm.Preparation{Declared: declared, DryRun: o.dryRun, Signatures: filesystem.ListSignatures})
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
