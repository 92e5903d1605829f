// Command nodelvm is the CSI driver: one process on every storage node that serves the Identity, Controller and Node
// services on a Unix socket, registers itself with the kubelet, and answers health checks and metrics over HTTP.
//
// The flow of a call: socket -> interceptors (log, measure, turn lvm's kinds of error into gRPC codes, recover) ->
// controller or node -> lvm. serve.go wires the parts together and takes them down in order; status.go holds the one
// table of codes. Nothing here knows LVM or mounts.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker: -X main.version=v0.1.0.
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
	root.AddCommand(serveCommand(), prepareCommand(), janitorCommand(), orphansCommand(), adoptCommand(), &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { cmd.Println(version) },
	})
	root.SetOut(os.Stdout)
	return root
}
