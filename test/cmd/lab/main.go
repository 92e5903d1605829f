// Command lab starts, inspects and stops a lab; see docs/development/lab.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/test/lab"
)

// exitCode is the exit code of a command that ran inside the lab.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newCommand().ExecuteContext(ctx)
	var code exitCode
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var dir string
	root := &cobra.Command{
		Use:           "lab",
		Short:         "A Kubernetes cluster in a box: user-mode Linux nodes with real device-mapper and LVM",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&dir, "dir", "", "folder of the lab's state (default: $NODELVM_LAB, or lab in the cache)")
	open := func() (*lab.Lab, error) { return lab.Open(dir) }
	root.AddCommand(upCommand(open), downCommand(open), buildCommand(open), statusCommand(open), logsCommand(open),
		kubectlCommand(open, &dir), shellCommand(open), execCommand(open), importCommand(open), powerCutCommand(open), bootCommand(open), diskCommand(open))
	return root
}

// opener opens the lab that the flags name.
type opener func() (*lab.Lab, error)

// then runs a command on the lab.
func (open opener) then(run func(ctx context.Context, l *lab.Lab, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		l, err := open()
		if err != nil {
			return err
		}
		return run(c.Context(), l, args)
	}
}

func upCommand(open opener) *cobra.Command {
	var nodes int
	var noKubernetes, services, hardware bool
	var suite string
	c := &cobra.Command{
		Use:   "up",
		Short: "Build what is missing and raise the lab",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := open()
			if err != nil {
				return err
			}
			return l.Up(c.Context(), lab.UpOptions{Nodes: nodes, ControlPlane: !noKubernetes, Services: services, Hardware: hardware, HardwareSuite: suite, Progress: os.Stderr})
		},
	}
	c.Flags().IntVar(&nodes, "nodes", 3, "number of worker nodes")
	c.Flags().BoolVar(&noKubernetes, "no-kubernetes", false, "only nodes with blank disks, for tests of LVM alone")
	c.Flags().BoolVar(&services, "services", false, "Services and cluster DNS work, which operators and their webhooks need")
	c.Flags().BoolVar(&hardware, "hardware", false, "qemu emulates the nodes: two processors, NVMe, SCSI and SATA disks, Debian's stock kernel; with --no-kubernetes")
	c.Flags().StringVar(&suite, "kernel", "", "with --hardware, the Debian suite of the kernel; by default that of the nodes")
	return c
}

func downCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End every process of the lab and remove its network namespace, disks and state",
		Args:  cobra.NoArgs,
		RunE: open.then(func(ctx context.Context, l *lab.Lab, _ []string) error {
			return l.Down(ctx)
		}),
	}
}

func execCommand(open opener) *cobra.Command {
	c := &cobra.Command{
		Use:   "exec NODE COMMAND...",
		Short: "Run a command in a node, as root",
		Args:  cobra.MinimumNArgs(2),
		RunE: open.then(func(ctx context.Context, l *lab.Lab, args []string) error {
			code, err := l.Exec(ctx, args[0], os.Stdin, os.Stdout, os.Stderr, args[1:]...)
			if err == nil && code != 0 {
				err = exitCode(code)
			}
			return err
		}),
	}
	c.Flags().SetInterspersed(false) // flags after NODE belong to the command
	return c
}

func powerCutCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "power-cut NODE",
		Short: "End a node at once, as if its power were cut",
		Args:  cobra.ExactArgs(1),
		RunE: open.then(func(_ context.Context, l *lab.Lab, args []string) error {
			return l.PowerCut(args[0])
		}),
	}
}

func bootCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "boot NODE",
		Short: "Boot a node that was cut off, from its own disks",
		Args:  cobra.ExactArgs(1),
		RunE: open.then(func(ctx context.Context, l *lab.Lab, args []string) error {
			return l.Boot(ctx, args[0])
		}),
	}
}

func diskCommand(open opener) *cobra.Command {
	return &cobra.Command{
		Use:   "disk ACTION NODE DISK",
		Short: "Pull a disk of a node on emulated hardware, return it, let it fail, repair it",
		Long:  "ACTION is one of " + strings.Join(lab.DiskActions(), ", ") + ". DISK is its serial number, as in the node's `lsblk -o NAME,SERIAL`.",
		Args:  cobra.ExactArgs(3),
		RunE: open.then(func(ctx context.Context, l *lab.Lab, args []string) error {
			return l.ActOnDisk(ctx, args[0], args[1], args[2])
		}),
	}
}
