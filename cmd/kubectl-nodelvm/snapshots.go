package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/terminal"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/inventory"
)

// snapshotRow is what `snapshots` shows about one snapshot.
type snapshotRow struct {
	Snapshot string          `json:"snapshot,omitempty"` // namespace/name of the VolumeSnapshot
	Claim    string          `json:"claim,omitempty"`    // of its source
	Node     string          `json:"node,omitempty"`
	Volume   string          `json:"logicalVolume,omitempty"` // group/volume
	Size     inventory.Bytes `json:"size"`                    // of the source when the snapshot was taken
	Created  time.Time       `json:"created,omitzero"`
	Status   string          `json:"status"`
	Text     string          `json:"message,omitempty"`
	Handle   string          `json:"handle,omitempty"`
}

func (c *command) snapshotsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "snapshots",
		Aliases: []string{"snapshot"},
		Short:   "List the snapshots with the claim that they were taken of, node, size, age and status (--namespace: only those of one namespace)",
		Args:    cobra.NoArgs,
		RunE: c.onCluster(func(cmd *cobra.Command, cluster *cluster, _ []string) error {
			namespace, err := c.namespace(cmd)
			if err != nil {
				return err
			}
			rows, err := cluster.snapshotRows(cmd.Context(), namespace)
			if err != nil {
				return err
			}
			return c.printTable(cmd, rows, snapshotTable(rows, time.Now(), c.settings.wide()))
		}),
	}
}

func (c *cluster) snapshotRows(ctx context.Context, namespace string) ([]snapshotRow, error) {
	contents, _, err := c.contents(ctx)
	if apierrors.IsForbidden(err) && namespace != "" {
		snapshots, err := c.namespaceSnapshots(ctx, namespace)
		return namespaceSnapshotRows(snapshots), err
	}
	if err != nil {
		return nil, inOneNamespace(err)
	}
	drivers, err := c.driversOrNone(ctx)
	if err != nil {
		return nil, err
	}
	rows := snapshotRowsOf(contents, c.answers(ctx, drivers, nil))
	return slices.DeleteFunc(rows, func(r snapshotRow) bool { return namespace != "" && !strings.HasPrefix(r.Snapshot, namespace+"/") }), nil
}

// snapshotRowsOf builds the rows from the contents and the nodes' answers, ordered by the snapshots' names.
func snapshotRowsOf(contents []content, answers []answer) []snapshotRow {
	names := map[string]string{} // by handle
	for _, content := range contents {
		if ref := content.Spec.VolumeSnapshotRef; ref.Name != "" {
			names[cmp.Or(content.Status.SnapshotHandle, content.Spec.Source.SnapshotHandle)] = ref.Namespace + "/" + ref.Name
		}
	}
	rows, held := []snapshotRow{}, map[string]bool{}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		claims := map[string]string{} // by handle
		for _, v := range a.page.Volumes {
			claims[v.ID] = v.Claim
		}
		for _, sn := range a.page.Snapshots {
			held[sn.ID] = true
			row := snapshotRow{Snapshot: names[sn.ID], Claim: claims[sn.Source], Node: a.node, Volume: string(sn.Group) + "/" + sn.LV, Size: sn.Size,
				Created: sn.Created, Status: healthy, Handle: sn.ID}
			switch {
			case sn.State != string(lvm.StateReady):
				row.Status, row.Text = sn.State, "the snapshot has the state "+sn.State
			case row.Snapshot == "":
				row.Status, row.Text = "orphaned", "no VolumeSnapshotContent refers to it: see kubectl nodelvm orphans"
			}
			rows = append(rows, row)
		}
	}
	for handle, name := range names {
		if handle != "" && !held[handle] {
			rows = append(rows, snapshotRow{Snapshot: name, Status: unknown, Text: "no node that answers has this snapshot", Handle: handle})
		}
	}
	slices.SortFunc(rows, func(a, b snapshotRow) int {
		return cmp.Or(strings.Compare(a.Snapshot, b.Snapshot), strings.Compare(a.Handle, b.Handle))
	})
	return rows
}

// namespaceSnapshotRows returns the rows for a user who may read only one namespace.
func namespaceSnapshotRows(snapshots []namespaceSnapshot) []snapshotRow {
	rows := []snapshotRow{}
	for _, sn := range snapshots {
		row := snapshotRow{Snapshot: sn.Namespace + "/" + sn.Name, Status: healthy}
		if sn.Spec.Source.Claim != "" {
			row.Claim = sn.Namespace + "/" + sn.Spec.Source.Claim
		}
		if size, err := resource.ParseQuantity(sn.Status.RestoreSize); err == nil {
			row.Size = inventory.Bytes(size.Value())
		}
		if sn.Status.Created != nil {
			row.Created = *sn.Status.Created
		}
		switch {
		case sn.Status.Error != nil:
			row.Status, row.Text = "error", printable.Text(sn.Status.Error.Message)
		case sn.Status.Ready == nil || !*sn.Status.Ready:
			row.Status, row.Text = "not ready", "the snapshot is not ready to use"
		}
		rows = append(rows, row)
	}
	return rows
}

func snapshotTable(rows []snapshotRow, now time.Time, wide bool) *terminal.Table {
	t := &terminal.Table{Header: []string{"SNAPSHOT", "CLAIM", "NODE", "SIZE", "AGE", "STATUS"}, None: "No snapshots of nodelvm."}
	if wide {
		t.Header = append(t.Header, "VOLUME", "HANDLE", "DETAILS")
	}
	for _, r := range rows {
		health := terminal.Cell{Text: r.Status, Tone: terminal.Good}
		if r.Status != healthy {
			health.Tone = terminal.Bad
		}
		row := []terminal.Cell{{Text: orDash(r.Snapshot)}, {Text: orDash(r.Claim)}, {Text: orDash(r.Node)}, {Text: r.Size.String()}, {Text: age(r.Created, now)}, health}
		if r.Size == 0 {
			row[3].Text = "-"
		}
		if wide {
			row = append(row, terminal.Cell{Text: orDash(r.Volume)}, terminal.Cell{Text: orDash(r.Handle)}, terminal.Cell{Text: orDash(r.Text)})
		}
		t.Add(row...)
	}
	return t
}
