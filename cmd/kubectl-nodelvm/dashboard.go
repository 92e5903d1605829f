package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/dashboard"
)

// leastInterval limits the load of an open page on the API server.
const leastInterval = 5 * time.Second

func (c *command) dashboardCommand() *cobra.Command {
	var port uint16
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Serve a page on this machine that shows nodes, disks and volumes",
		Long: `Serve a page on 127.0.0.1 that shows each node's disks with every volume, snapshot, thin pool, wipe and free extent range, and follows changes.

The page uses your own rights, changes nothing, and can only be opened with the printed URL, in one browser: it holds a token that works once. The cluster is read only
while a page is open. Stop the command with Ctrl-C.`,
		Args: cobra.NoArgs,
		PreRunE: func(*cobra.Command, []string) error {
			if interval < leastInterval {
				return fmt.Errorf("--interval is %s; give at least %s", interval, leastInterval)
			}
			return nil
		},
		RunE: c.inNamespace(func(cmd *cobra.Command, cluster *cluster, namespace string, _ []string) error {
			hello := dashboard.Hello{Cluster: cluster.config.Host, Version: version}
			server, err := dashboard.Listen(cmd.Context(), port, hello, dashboard.NewCollector(newDashboardSource(cluster, namespace), interval))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", server.URL); err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			return server.Run(ctx)
		}),
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "port on 127.0.0.1 (default: a free one)")
	cmd.Flags().DurationVar(&interval, "interval", 15*time.Second, "time between two reads of a node, at least 5s; with many nodes a round takes longer")
	return cmd
}
