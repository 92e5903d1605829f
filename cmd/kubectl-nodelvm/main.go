// Command kubectl-nodelvm is kubectl's plugin for nodelvm: `kubectl nodelvm nodes`, and so on. It reads objects from the API server,
// and the status page (package statuspage) of each node's driver, through a port that the API server forwards to its pod. It has
// only the rights of its user, and changes nothing.
//
//	cluster, pages,        what is read, and how a pod is reached
//	forward
//	nodes, volumes, disks, one file each: what the command tells, as a pure function of what was read, and how it is shown
//	snapshots, orphans,
//	draincheck
//	namespaced             the same for users who may read one namespace only
//	why                    what package pending decides from, and how it is shown
//	doctor, facts          the command, and what its checks are functions of
//	check...               the checks; rights has the driver's own
//	dashboard,             the page that package dashboard serves, and what it reads
//	dashboardsource
//	table, output,         how it is printed
//	printable
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/terminal"
)

// version is set by the linker: -X main.version=v0.1.0.
var version = "devel"

// Exit statuses: drain-check and doctor have found something; anything else went wrong.
const (
	exitFound  = 1
	exitFailed = 2
)

// errFound ends a command that has told what it found.
var errFound = errors.New("the check has findings")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := newRoot().ExecuteContext(ctx)
	stop()
	switch {
	case errors.Is(err, errFound):
		os.Exit(exitFound)
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", printable.Lines(err.Error()))
		os.Exit(exitFailed)
	}
}

// command is what all subcommands share.
type command struct {
	config   clientcmd.ClientConfig
	settings settings
}

func newRoot() *cobra.Command {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	overrides := &clientcmd.ConfigOverrides{}
	c := &command{config: clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)}
	root := &cobra.Command{
		Use:           "kubectl-nodelvm",
		Short:         "Show nodelvm's nodes and volumes, and find what is wrong with them",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl nodelvm"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path of the kubeconfig file (default: KUBECONFIG, or ~/.kube/config)")
	clientcmd.BindOverrideFlags(overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	c.settings.bind(root)
	root.AddCommand(c.nodesCommand(), c.volumesCommand(), c.disksCommand(), c.snapshotsCommand(), c.orphansCommand(), c.drainCheckCommand(), c.whyCommand(), c.doctorCommand(),
		c.dashboardCommand())
	root.SetOut(os.Stdout)
	return root
}

// onCluster is a subcommand's work on the cluster that the flags name.
func (c *command) onCluster(run func(*cobra.Command, *cluster, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cluster, err := c.connect()
		if err != nil {
			return err
		}
		return run(cmd, cluster, args)
	}
}

// printTable prints a subcommand's rows, as a table unless the flags say otherwise.
func (c *command) printTable(cmd *cobra.Command, rows any, t *terminal.Table) error {
	return c.settings.print(cmd.OutOrStdout(), rows, func(w io.Writer, s screen) error {
		t.Bars = s.bars
		return t.Write(w, s.width, s.colour)
	})
}

// connect makes the client of the cluster that the flags name; it sends no request.
func (c *command) connect() (*cluster, error) {
	config, err := c.config.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot determine the cluster: %w", err)
	}
	return newCluster(config, c.settings.nodeTimeout)
}

// namespace is the one that --namespace names; "" for all.
func (c *command) namespace(cmd *cobra.Command) (string, error) {
	if !cmd.Flags().Changed("namespace") {
		return "", nil
	}
	namespace, _, err := c.config.Namespace()
	return namespace, err
}
