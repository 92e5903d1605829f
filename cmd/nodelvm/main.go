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
