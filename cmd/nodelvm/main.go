// Command nodelvm is the CSI driver: one process on each storage node that serves the Identity, Controller and Node services on
// a Unix socket, registers with the kubelet, and serves health checks and metrics over HTTP.
//
// The flow of a call: socket -> interceptors (log, measure, map lvm's kinds of error to gRPC codes, recover from panics) ->
// controller or node -> lvm. serve.go connects the parts and stops them in order; status.go has the one table of codes. This
// package contains no LVM or mount logic.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// version is the release. The linker sets it: -X main.version=v0.1.0.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := rootCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "nodelvm:", err)
		stop()
		os.Exit(1)
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "nodelvm",
		Short:         "LVM volumes from a node's own disks, for Kubernetes (CSI)",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serveCommand(), prepareCommand(), orphansCommand(), adoptCommand(), disksCommand(), &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { cmd.Println(version) },
	})
	root.SetOut(os.Stdout)
	return root
}

// garbagePercent is how much the heap grows, relative to what is in use, before Go collects garbage: half of Go's default. Each object of the cluster that
// a watch brings becomes garbage at once, and a tenant's claims have up to 1.5 MiB. A limit in bytes would have Go collect all the time on a node where
// more than that is in use.
const garbagePercent = 50

// limitGarbage sets the percentage, unless the environment has one.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}
