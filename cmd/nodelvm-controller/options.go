package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodelvm/nodelvm/kube/nodegroup"
)

// options are the flags.
type options struct {
	namespace    string
	grace        time.Duration
	nodeGroups   string
	httpEndpoint string
	logLevel     string
	logFormat    string
}

// leastGrace is the shortest grace period: a kubelet needs less time to create its Node object again.
const leastGrace = 10 * time.Second

func (o *options) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.namespace, "leader-election-namespace", os.Getenv("POD_NAMESPACE"), "namespace of the lease for leader election (default: environment variable POD_NAMESPACE)")
	flags.DurationVar(&o.grace, "grace-period", 10*time.Minute, "time for which a node or volume group must be lost before the controller deletes an object; at least 10s")
	flags.StringVar(&o.nodeGroups, "node-groups-file", "", "YAML or JSON file with the node groups whose future nodes' capacity is published for cluster-autoscaler; empty: none, and the controller deletes what it published for earlier ones")
	flags.StringVar(&o.httpEndpoint, "http-endpoint", ":9808", "address of /healthz, /readyz and /metrics; empty: no HTTP server")
	flags.StringVar(&o.logLevel, "log-level", "info", "log level: debug, info, warn or error")
	flags.StringVar(&o.logFormat, "log-format", "json", "log format: json or console")
}

func (o *options) check() error {
	switch {
	case o.namespace == "":
		return errors.New("--leader-election-namespace is empty; set it to the namespace of this pod, or set the environment variable POD_NAMESPACE")
	case o.grace < leastGrace:
		return fmt.Errorf("--grace-period is %s; set it to %s or more, so that a node that restarts does not count as lost", o.grace, leastGrace)
	}
	return nil
}

// readNodeGroups returns the node groups of the file; none without a file.
func (o *options) readNodeGroups() ([]nodegroup.Group, error) {
	if o.nodeGroups == "" {
		return nil, nil
	}
	return nodegroup.Read(o.nodeGroups)
}

func rootCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "nodelvm-controller",
		Short:         "Report volumes on lost nodes, and release those whose storage class allows it (one Deployment in a cluster)",
		Version:       version,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return run(cmd.Context(), &o)
		},
	}
	o.bind(cmd.Flags())
	return cmd
}
