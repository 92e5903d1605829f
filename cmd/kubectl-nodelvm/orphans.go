package main

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/lvm/inventory"
)

// orphanRow is a volume or a snapshot that stands on a node's disks, and that no object of this cluster speaks of.
type orphanRow struct {
	Kind    string          `json:"kind"`
	Node    string          `json:"node"`
	What    string          `json:"what"`   // volume or snapshot
	Volume  string          `json:"volume"` // group/volume
	Size    inventory.Bytes `json:"size"`
	Claim   string          `json:"claim,omitempty"`
	Created time.Time       `json:"created,omitzero"`
	Cluster string          `json:"cluster"`
	Handle  string          `json:"handle"`
	Error   string          `json:"error,omitempty"` // why nothing is known of the node
}

// Kinds of orphans.
const (
	kindOrphan  = "orphan"  // made by this cluster
	kindForeign = "foreign" // made by another cluster
	kindUnknown = "unknown" // the node does not tell
)

// settled is how old something is whose object has been made, if there is to be one.
const settled = 2 * time.Minute

func (c *command) orphansCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "orphans",
		Short: "Show what stands on the nodes' disks and in no PersistentVolume or snapshot; nothing is removed",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := c.connect()
			if err != nil {
				return err
			}
			rows, err := cluster.orphanRows(cmd.Context())
			if err != nil {
				return err
			}
			return c.settings.print(cmd.OutOrStdout(), rows, func(w io.Writer, s screen) error {
				return orphanTable(rows, c.settings.wide()).write(w, s.width, s.colour)
			})
		},
	}
}

// orphanRows asks the nodes first, and the API afterwards: what is made or removed meanwhile is no orphan.
func (c *cluster) orphanRows(ctx context.Context) ([]orphanRow, error) {
	drivers, err := c.driversOrNone(ctx)
	if err != nil {
		return nil, err
	}
	answers := c.answers(ctx, drivers, nil)
	volumes, err := c.volumes(ctx)
	if err != nil {
		return nil, err
	}
	contents, _, err := c.contents(ctx)
	if err != nil {
		return nil, err
	}
	return orphanRowsOf(answers, volumes, contents), nil
}

// orphanRowsOf lists what is ready on the nodes and has no object, ordered by node.
func orphanRowsOf(answers []answer, volumes []corev1.PersistentVolume, contents []content) []orphanRow {
	known := map[string]bool{}
	for _, pv := range volumes {
		known[pv.Spec.CSI.VolumeHandle] = true
	}
	names := map[string]bool{} // of contents whose snapshot was taken and is not noted yet
	for _, item := range contents {
		known[item.Status.SnapshotHandle] = true
		names["snapshot-"+string(item.Spec.VolumeSnapshotRef.UID)] = true
	}
	rows := []orphanRow{}
	for _, a := range answers {
		if a.err != nil {
			rows = append(rows, orphanRow{Kind: kindUnknown, Node: a.node, Error: a.err.Error()})
			continue
		}
		kind := func(cluster string) string {
			if cluster != a.page.Cluster {
				return kindForeign
			}
			return kindOrphan
		}
		for _, v := range a.page.Volumes {
			if v.State == stateReady && !known[v.ID] && a.page.Time.Sub(v.Created) > settled {
				rows = append(rows, orphanRow{Kind: kind(v.Cluster), Node: a.node, What: "volume", Volume: v.Group + "/" + v.LV, Size: v.Size,
					Claim: v.Claim, Created: v.Created, Cluster: v.Cluster, Handle: v.ID})
			}
		}
		for _, sn := range a.page.Snapshots {
			if sn.State == stateReady && !known[sn.ID] && !names[sn.Name] && a.page.Time.Sub(sn.Created) > settled {
				rows = append(rows, orphanRow{Kind: kind(sn.Cluster), Node: a.node, What: "snapshot", Volume: sn.Group + "/" + sn.LV, Size: sn.Size,
					Created: sn.Created, Cluster: sn.Cluster, Handle: sn.ID})
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b orphanRow) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Volume, b.Volume))
	})
	return rows
}

func orphanTable(rows []orphanRow, wide bool) *table {
	t := &table{header: []string{"NODE", "KIND", "WHAT", "VOLUME", "SIZE", "CLAIM", "CREATED"}}
	if wide {
		t.header = append(t.header, "CLUSTER", "HANDLE")
	}
	for _, r := range rows {
		if r.Error != "" {
			row := []cell{{text: r.Node}, {kindUnknown, bad}, {text: "-"}, {text: r.Error}, {text: "-"}, {text: "-"}, {text: "-"}}
			t.add(append(row, slices.Repeat([]cell{{text: "-"}}, len(t.header)-len(row))...)...)
			continue
		}
		created := "-"
		if !r.Created.IsZero() {
			created = r.Created.UTC().Format(time.DateOnly)
		}
		row := []cell{{text: r.Node}, {text: r.Kind}, {text: r.What}, {text: r.Volume}, {text: r.Size.String()}, {text: orDash(r.Claim)}, {text: created}}
		if wide {
			row = append(row, cell{text: r.Cluster}, cell{text: r.Handle})
		}
		t.add(row...)
	}
	return t
}
