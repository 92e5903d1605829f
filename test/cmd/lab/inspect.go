package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/test/lab"
)

// kubectlCommand passes all flags to kubectl, except --dir directly after "kubectl".
func kubectlCommand(open opener, dir *string) *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ARGS...",
		Short:              "Run kubectl as the cluster's admin",
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 && args[0] == "--dir" {
				*dir, args = args[1], args[2:]
			}
			l, err := open()
			if err != nil {
				return err
			}
			if err := l.ControlPlaneError(); err != nil {
				return err
			}
			return withExitCode(l.Kubectl(c.Context(), os.Stdin, os.Stdout, os.Stderr, args...))
		},
	}
}

// withExitCode returns the exit code of a program that failed as the lab's own.
func withExitCode(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exitCode(exit.ExitCode())
	}
	return err
}

func statusCommand(open opener) *cobra.Command {
	return open.command("status", "Show what of the lab is running", cobra.NoArgs, func(_ context.Context, l *lab.Lab, _ []string) error {
		status, err := l.Status()
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintf(w, "folder\t%s\nnetwork namespace\t%s\nlogs\t%s\n", status.Dir, status.Namespace, l.Logs())
		for _, p := range status.Processes {
			state := "stopped"
			if p.Running {
				state = fmt.Sprintf("running, pid %d", p.PID)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\n", p.Name, state)
		}
		return w.Flush()
	})
}

func logsCommand(open opener) *cobra.Command {
	var follow bool
	c := open.command("logs [NAME]", "List the logs, or show one", cobra.MaximumNArgs(1), func(ctx context.Context, l *lab.Lab, args []string) error {
		if len(args) == 0 {
			return listLogs(l.Logs())
		}
		tail := []string{"-n", "+1"}
		if follow {
			tail = []string{"-n", "30", "-F"}
		}
		cmd := exec.CommandContext(ctx, "tail", append(tail, filepath.Join(l.Logs(), filepath.Base(args[0])+".log"))...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what is appended")
	return c
}

func listLogs(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return err
		}
		fmt.Printf("%9d  %s\n", info.Size(), strings.TrimSuffix(filepath.Base(f), ".log"))
	}
	return nil
}
