// Command kubectl-nodelvm is kubectl's plugin for nodelvm: `kubectl nodelvm nodes`, and so on. It reads objects from the API
// server, and the status page (package report) of each node's driver, through a port that the API server forwards to the
// driver's pod. It has only the rights of its user. Only move and drain change anything: annotations of claims.
//
//	cluster, pages,        read the API server and the status pages; forward connects to a pod
//	forward
//	nodes, volumes, disks, one subcommand each: a pure function from what was read to rows, and one from rows to a table
//	snapshots, orphans,
//	draincheck
//	namespaced             volumes and snapshots for users who may read one namespace only
//	why, whyfacts, events  prints what package pending decides; reads what it decides from
//	absent                 why a node does not report a volume
//	doctor, facts          the command, and what its checks read
//	check...               the checks; rights lists those of the driver's account
//	move, moves, drain     the commands that move volumes to other nodes
//	movefacts, moveclaim,  what they read, the pure functions that plan a move from it, and how far it is
//	movegroup, movetarget,
//	moverules, moveplan,
//	movestate
//	movewrite, movefollow  annotate claims; wait for the end of moves
//	dashboard,             the command that serves package dashboard's page, and the page's source
//	dashboardsource
//	version                the versions of the plugin and of the drivers
//	output, table          the flags of all commands, the output formats, and tables as kubectl prints them
//
// Package printable escapes texts for a terminal or a shell.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
)

// version is set by the linker: -X main.version=v0.1.0.
var version = "devel"

// Exit statuses: exitFound if drain-check or doctor found something, or drain leaves volumes; exitFailed for any error.
const (
	exitFound  = 1
	exitFailed = 2
)

// errFound ends a command that has printed its findings.
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
	_, root := newCommand()
	return root
}

func newCommand() (*command, *cobra.Command) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	overrides := &clientcmd.ConfigOverrides{}
	c := &command{config: clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)}
	root := &cobra.Command{
		Use:           "kubectl-nodelvm",
		Short:         "Show nodelvm's nodes and volumes, find what is wrong with them, and move volumes to other nodes",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl nodelvm"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path of the kubeconfig file (default: KUBECONFIG, or ~/.kube/config)")
	bindConnection(overrides, flags)
	c.settings.bind(root)
	root.AddCommand(c.nodesCommand(), c.volumesCommand(), c.disksCommand(), c.snapshotsCommand(), c.orphansCommand(), c.drainCheckCommand(),
		c.moveCommand(), c.movesCommand(), c.drainCommand(), c.whyCommand(), c.doctorCommand(), c.dashboardCommand(), c.versionCommand())
	root.SetOut(os.Stdout)
	return c, root
}

// bindConnection adds kubectl's flags for the API server and its user. They are those of package clientcmd, and two that only kubectl's
// own packages add; these would link code for building objects.
func bindConnection(overrides *clientcmd.ConfigOverrides, flags *pflag.FlagSet) {
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(overrides, flags, names)
	flags.Func("as-user-extra", "User extras to impersonate for the operation, KEY=VALUE; this flag can be repeated", func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok || key == "" {
			return errors.New("give KEY=VALUE")
		}
		if overrides.AuthInfo.ImpersonateUserExtra == nil {
			overrides.AuthInfo.ImpersonateUserExtra = map[string][]string{}
		}
		overrides.AuthInfo.ImpersonateUserExtra[key] = append(overrides.AuthInfo.ImpersonateUserExtra[key], value)
		return nil
	})
}

// onCluster returns a subcommand's RunE, which calls run with the cluster that the flags name.
func (c *command) onCluster(run func(*cobra.Command, *cluster, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		cluster, err := c.connect()
		if err != nil {
			return err
		}
		return run(cmd, cluster, args)
	}
}

// inNamespace is onCluster for a subcommand that works in one namespace, as kubectl selects it.
func (c *command) inNamespace(run func(*cobra.Command, *cluster, string, []string) error) func(*cobra.Command, []string) error {
	return c.onCluster(func(cmd *cobra.Command, cluster *cluster, args []string) error {
		namespace, _, err := c.config.Namespace()
		if err != nil {
			return err
		}
		return run(cmd, cluster, namespace, args)
	})
}

// connect returns a client for the cluster that the flags name; it sends no request.
func (c *command) connect() (*cluster, error) {
	config, err := c.config.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot determine the cluster: %w", err)
	}
	return newCluster(config, c.settings.nodeTimeout)
}

// rowsCommand returns a subcommand that reads rows and prints them as a table. The namespace is "" for all: with kubectl's flag -A, or without -n.
func rowsCommand[R any](c *command, use, short string, read func(ctx context.Context, cluster *cluster, namespace string) ([]R, *table, error)) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	cmd.Flags().BoolP(allNamespaces, "A", false, "list the objects of all namespaces, as without --namespace")
	cmd.RunE = c.onCluster(func(cmd *cobra.Command, cluster *cluster, _ []string) error {
		namespace, err := c.namespace(cmd)
		if err != nil {
			return err
		}
		rows, t, err := read(cmd.Context(), cluster, namespace)
		if err != nil {
			return err
		}
		return printRows(&c.settings, cmd.OutOrStdout(), rows, t)
	})
	return cmd
}

const allNamespaces = "all-namespaces"

// namespace returns the value of --namespace, or "" for all namespaces.
func (c *command) namespace(cmd *cobra.Command) (string, error) {
	if all, err := cmd.Flags().GetBool(allNamespaces); err != nil || all || !cmd.Flags().Changed("namespace") {
		return "", err
	}
	namespace, _, err := c.config.Namespace()
	return namespace, err
}
