package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
)

// adminDir is the LVM_SYSTEM_DIR of these commands; the driver has another one.
const adminDir = "/run/nodelvm/admin"

// adminOptions are the flags of the commands that an admin runs in the driver's container.
type adminOptions struct {
	nodeName  string
	clusterID string
	lockDir   string
	accepted  acceptedOptions
}

func (o *adminOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node (default: environment variable NODE_NAME)")
	flags.StringVar(&o.clusterID, "cluster-id", os.Getenv("CLUSTER_ID"), "cluster ID of the driver (default: environment variable CLUSTER_ID, or else the UID of the namespace kube-system)")
	flags.StringVar(&o.lockDir, "lock-dir", "/run/lock/lvm", "directory of the host's LVM locks (lvm.conf: locking_dir)")
	o.accepted.bindStateDir(flags)
}

// adminSession is the environment of such a command, which runs beside this node's driver.
type adminSession struct {
	*adminOptions
	client *kubeclient.Client
	host   *host.Host
}

func (o *adminOptions) open(ctx context.Context) (*adminSession, error) {
	if o.nodeName == "" {
		return nil, errors.New("--node-name is empty; set it, or the environment variable NODE_NAME")
	}
	client, err := kubeclient.NewClient()
	if err != nil {
		return nil, err
	}
	if o.clusterID == "" {
		if o.clusterID, err = askCluster(ctx, client); err != nil {
			return nil, err
		}
	}
	host, err := host.NewHost(lvm.Config{SystemDir: adminDir, LockDir: o.lockDir, Cluster: o.clusterID, Node: o.nodeName, Accepted: o.accepted.withEnvironment().config(), AdminCLI: true})
	return &adminSession{o, client, host}, err
}

func (a *adminSession) orphans(ctx context.Context) ([]kube.Orphan, error) {
	search := kube.OrphanSearch{Client: a.client, Holdings: a.host.ManagedVolumes}
	found, _, err := search.Find(ctx)
	return found, err
}

func orphansCommand() *cobra.Command {
	var o adminOptions
	var output string
	cmd := &cobra.Command{
		Use:   "orphans",
		Short: "List the volumes and snapshots on this node that no object in the cluster refers to (run it in the driver's container)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output is %q; set it to table or json", output)
			}
			a, err := o.open(cmd.Context())
			if err != nil {
				return err
			}
			found, err := a.orphans(cmd.Context())
			if err != nil {
				return err
			}
			held, err := a.host.ManagedVolumes(cmd.Context())
			if err != nil {
				return err
			}
			if output == "json" {
				return errors.Join(printOrphansJSON(cmd.OutOrStdout(), found), unreadError(held.Unread))
			}
			return printOrphans(cmd.OutOrStdout(), found, held.Unread)
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", "table", "output format: table or json")
	return cmd
}

// unreadError says that the list of orphans may lack some; nil: it does not.
func unreadError(unread []string) error {
	if len(unread) == 0 {
		return nil
	}
	return fmt.Errorf("the list may lack volumes and snapshots: %s", strings.Join(unread, "; "))
}

// printOrphans prints a table. unread has what the driver could not read.
func printOrphans(out io.Writer, found []kube.Orphan, unread []string) error {
	if len(found) == 0 {
		if err := unreadError(unread); err != nil {
			return err
		}
		_, err := fmt.Fprintln(out, "No orphans: each volume and snapshot on this node has its object in the cluster.")
		return err
	}
	text := "REASON\tVOLUME\tSIZE\tFORMER CLAIM\tDETAILS\n"
	for _, o := range found {
		text += fmt.Sprintf("%s\t%s/%s\t%s\t%s\t%s\n", o.Reason, o.Group, o.ID.LV, o.Size, o.Claim, o.Why)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, err := io.WriteString(table, text)
	return errors.Join(err, table.Flush(), unreadError(unread))
}

func printOrphansJSON(out io.Writer, found []kube.Orphan) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(kube.Published(found))
}
