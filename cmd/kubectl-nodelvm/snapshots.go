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

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// snapshotRow is what `snapshots` shows about one snapshot.
type snapshotRow struct {
	Snapshot string    `json:"snapshot,omitempty"` // namespace/name of the VolumeSnapshot
	Claim    string    `json:"claim,omitempty"`    // of its source
	Node     string    `json:"node,omitempty"`
	Volume   string    `json:"logicalVolume,omitempty"` // group/volume
	Size     lvm.Bytes `json:"size"`                    // of the source when the snapshot was taken
	Created  time.Time `json:"created,omitzero"`
	Status   string    `json:"status"`
	Text     string    `json:"message,omitempty"`
	Handle   string    `json:"handle,omitempty"`
}

func (r snapshotRow) object() (kind, name string) {
	return "volumesnapshot." + api.SnapshotGroup, r.Snapshot
}

func (c *command) snapshotsCommand() *cobra.Command {
	cmd := rowsCommand(c, "snapshots", "List the snapshots with the claim that they were taken of, node, size, age and status (--namespace: only those of one namespace)",
		func(ctx context.Context, cluster *cluster, namespace string) ([]snapshotRow, *table, error) {
			rows, err := cluster.snapshotRows(ctx, namespace)
			return rows, snapshotTable(rows, time.Now(), c.settings.wide()), err
		})
	cmd.Aliases = []string{"snapshot"}
	return cmd
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
	taken, err := c.namespaceSnapshots(ctx, namespace)
	if err != nil && !apierrors.IsForbidden(err) { // without that right the claims of absent snapshots are unknown
		return nil, err
	}
	rows := snapshotRowsOf(contents, taken, c.answers(ctx, drivers, nil))
	return slices.DeleteFunc(rows, func(r snapshotRow) bool { return namespace != "" && !strings.HasPrefix(r.Snapshot, namespace+"/") }), nil
}

// notTaken is the status of a snapshot that nothing can be restored from yet.
const notTaken = "not ready"

// snapshotRowsOf builds the rows from the contents, the VolumeSnapshots and the nodes' answers, ordered by the snapshots' names.
func snapshotRowsOf(contents []content, taken []namespaceSnapshot, answers []answer) []snapshotRow {
	named := map[string]*content{} // by handle
	for i := range contents {
		if handle := contents[i].handle(); handle != "" && contents[i].name() != "" {
			named[handle] = &contents[i]
		}
	}
	sources := map[string]string{} // claims, by the snapshot's namespace/name
	for _, s := range taken {
		if s.Spec.Source.Claim != "" {
			sources[s.Namespace+"/"+s.Name] = s.Namespace + "/" + s.Spec.Source.Claim
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
			row := snapshotRow{Claim: claims[sn.Source], Node: a.node, Volume: string(sn.Group) + "/" + sn.LV, Size: sn.Size,
				Created: sn.Created, Status: healthy, Handle: sn.ID}
			if of := named[sn.ID]; of != nil {
				row.Snapshot, row.Claim = of.name(), cmp.Or(row.Claim, sources[of.name()])
			}
			switch {
			case sn.State != string(lvm.StateReady):
				row.Status, row.Text = sn.State, "the snapshot has the state "+sn.State
			case row.Snapshot == "" && isMember(sn) && !a.isOrphan(sn.ID):
				row.Text = "a part of a group snapshot, without its own VolumeSnapshotContent"
			case row.Snapshot == "":
				row.Status, row.Text = "orphaned", "no VolumeSnapshotContent refers to it: see kubectl nodelvm orphans"
			}
			rows = append(rows, row)
		}
	}
	for handle, of := range named {
		if !held[handle] {
			rows = append(rows, absentSnapshot(of, sources, answers))
		}
	}
	rows = append(rows, untakenSnapshots(contents, taken)...)
	slices.SortFunc(rows, func(a, b snapshotRow) int {
		return cmp.Or(strings.Compare(a.Snapshot, b.Snapshot), strings.Compare(a.Handle, b.Handle))
	})
	return rows
}

// untakenSnapshots returns rows for contents whose snapshot no node has taken yet.
func untakenSnapshots(contents []content, taken []namespaceSnapshot) (rows []snapshotRow) {
	for i := range contents {
		of := &contents[i]
		if of.handle() != "" || of.name() == "" {
			continue
		}
		row := snapshotRow{Snapshot: of.name(), Status: notTaken, Text: "the snapshot is not taken yet"}
		if s := find(taken, func(s *namespaceSnapshot) bool { return s.Namespace+"/"+s.Name == of.name() }); s != nil {
			row = namespaceSnapshotRows([]namespaceSnapshot{*s})[0]
		}
		row.Node = of.Labels[api.LabelManagedBy]
		rows = append(rows, row)
	}
	return rows
}

// isMember reports whether a snapshot has the name of a part of a group snapshot. The content of the group snapshot may be its only object.
func isMember(sn report.Snapshot) bool {
	group, _, cut := strings.Cut(sn.Name, "/")
	return cut && lvm.ID{LV: group}.IsGroupSnapshot()
}

// isOrphan reports whether the driver found no object for a volume or snapshot.
func (a *answer) isOrphan(handle string) bool {
	return a.page.Comparison != nil && slices.ContainsFunc(a.page.Comparison.Unreferenced, func(u report.Unreferenced) bool { return u.Handle == handle })
}

// absentSnapshot returns the row of a snapshot that no node reports: its content names its node.
func absentSnapshot(of *content, sources map[string]string, answers []answer) snapshotRow {
	row := snapshotRow{Snapshot: of.name(), Claim: sources[of.name()], Node: of.Labels[api.LabelManagedBy], Size: lvm.Bytes(of.Status.RestoreSize), Handle: of.handle()}
	if of.Status.CreationTime > 0 {
		row.Created = time.Unix(0, of.Status.CreationTime)
	}
	a := answerOf(answers, row.Node)
	switch {
	case row.Node == "":
		row.Status, row.Text = unknown, "its content names no node, and no node that answers has this snapshot"
	case a == nil:
		row.Status, row.Text = noDriver, "no driver pod runs on node "+row.Node+", so the state of the snapshot is unknown"
	case a.incomplete() != "":
		row.Status, row.Text = unknown, "its node does not report it: "+a.incomplete()
	default:
		row.Status, row.Text = statusLost, "the snapshot is not on the disks of its node"
	}
	return row
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
			row.Size = lvm.Bytes(size.Value())
		}
		if sn.Status.Created != nil {
			row.Created = *sn.Status.Created
		}
		switch {
		case sn.Status.Error != nil:
			row.Status, row.Text = "error", printable.Text(sn.Status.Error.Message)
		case sn.Status.Ready == nil || !*sn.Status.Ready:
			row.Status, row.Text = notTaken, "the snapshot is not ready to use"
		}
		rows = append(rows, row)
	}
	return rows
}

func snapshotTable(rows []snapshotRow, now time.Time, wide bool) *table {
	t := &table{header: []string{"SNAPSHOT", "CLAIM", "NODE", "SIZE", "AGE", "STATUS"}, none: "No snapshots of nodelvm."}
	if wide {
		t.header = append(t.header, "VOLUME", "HANDLE", "DETAILS")
	}
	for _, r := range rows {
		size := ""
		if r.Size > 0 {
			size = r.Size.String()
		}
		row := []string{r.Snapshot, r.Claim, r.Node, size, age(r.Created, now), r.Status}
		if wide {
			row = append(row, r.Volume, r.Handle, r.Text)
		}
		t.add(row...)
	}
	return t
}
