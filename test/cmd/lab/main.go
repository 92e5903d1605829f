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
	open := opener(func() (*lab.Lab, error) { return lab.Open(dir) })
	root.AddCommand(upCommand(open), statusCommand(open), logsCommand(open), kubectlCommand(open, &dir), execCommand(open),
		open.command("down", "End every process of the lab and remove its network namespace, disks and state", cobra.NoArgs,
			func(ctx context.Context, l *lab.Lab, _ []string) error { return l.Down(ctx) }),
		open.command("build", "Install, compile and prepare all that up needs, and raise nothing", cobra.NoArgs,
			func(ctx context.Context, l *lab.Lab, _ []string) error { return l.Build(ctx, os.Stderr) }),
		open.command("shell", "Start a shell in the lab's network, with kubectl, helm and kubectl nodelvm for the cluster's admin", cobra.NoArgs,
			func(ctx context.Context, l *lab.Lab, _ []string) error { return withExitCode(l.InteractiveShell(ctx)) }),
		open.command("import ARCHIVE.tar", "Put a docker-archive into every running node", cobra.ExactArgs(1),
			func(ctx context.Context, l *lab.Lab, args []string) error { return l.ImportImage(ctx, args[0]) }),
		open.command("power-cut NODE", "End a node at once, as if its power were cut", cobra.ExactArgs(1),
			func(_ context.Context, l *lab.Lab, args []string) error { return l.PowerCut(args[0]) }),
		open.command("boot NODE", "Boot a node that was cut off, from its own disks", cobra.ExactArgs(1),
			func(ctx context.Context, l *lab.Lab, args []string) error { return l.Boot(ctx, args[0]) }))
	disk := open.command("disk ACTION NODE DISK", "Pull a disk of a node on emulated hardware, return it, let it fail, repair it", cobra.ExactArgs(3),
		func(ctx context.Context, l *lab.Lab, args []string) error {
			return l.ActOnDisk(ctx, args[0], args[1], args[2])
		})
	disk.Long = "ACTION is one of " + strings.Join(lab.DiskActions(), ", ") + ". DISK is its serial number, as in the node's `lsblk -o NAME,SERIAL`."
	root.AddCommand(disk)
	return root
}

// opener opens the lab that the flags name.
type opener func() (*lab.Lab, error)

// command returns a command on the lab.
func (open opener) command(use, short string, arguments cobra.PositionalArgs, run func(ctx context.Context, l *lab.Lab, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: arguments, RunE: func(c *cobra.Command, args []string) error {
		l, err := open()
		if err != nil {
			return err
		}
		return run(c.Context(), l, args)
	}}
}

func upCommand(open opener) *cobra.Command {
	var nodes int
	var noKubernetes, services, hardware bool
	var arch, suite string
	c := open.command("up", "Build what is missing and raise the lab", cobra.NoArgs, func(ctx context.Context, l *lab.Lab, _ []string) error {
		return l.Up(ctx, lab.UpOptions{Nodes: nodes, ControlPlane: !noKubernetes, Services: services, Hardware: hardware, Arch: arch, HardwareSuite: suite, Progress: os.Stderr})
	})
	c.Flags().IntVar(&nodes, "nodes", 3, "number of worker nodes")
	c.Flags().BoolVar(&noKubernetes, "no-kubernetes", false, "only nodes with blank disks, for tests of LVM alone")
	c.Flags().BoolVar(&services, "services", false, "Services and cluster DNS work, which operators and their webhooks need")
	c.Flags().BoolVar(&hardware, "hardware", false, "qemu emulates the nodes: two processors, NVMe, SCSI and SATA disks, Debian's stock kernel")
	c.Flags().StringVar(&arch, "arch", "amd64", "with --hardware, the nodes' processor: amd64 or arm64")
	c.Flags().StringVar(&suite, "kernel", "", "with --hardware, the Debian suite of the kernel; by default that of the nodes")
	return c
}

func execCommand(open opener) *cobra.Command {
	c := open.command("exec NODE COMMAND...", "Run a command in a node, as root", cobra.MinimumNArgs(2), func(ctx context.Context, l *lab.Lab, args []string) error {
		code, err := l.Exec(ctx, args[0], os.Stdin, os.Stdout, os.Stderr, args[1:]...)
		if err == nil && code != 0 {
			err = exitCode(code)
		}
		return err
	})
	c.Flags().SetInterspersed(false) // flags after NODE belong to the command
	return c
}
