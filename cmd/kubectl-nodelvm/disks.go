package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// diskRow is a row of `disks`: one physical volume, with the disk that it is or was on.
type diskRow struct {
	Node    string      `json:"node"`
	Group   lvm.VGName  `json:"volumeGroup,omitempty"`
	PV      string      `json:"pvUUID,omitempty"`
	Size    lvm.Bytes   `json:"size,omitempty"` // of the physical volume
	Used    lvm.Bytes   `json:"used"`
	Volumes []string    `json:"volumes,omitempty"` // logical volumes with extents on it
	Disk    report.Disk `json:"disk"`
	Status  string      `json:"status"`
	Why     string      `json:"acceptedBy,omitempty"` // why the driver believes what is on it
	Text    string      `json:"message,omitempty"`
}

// States of a disk.
const (
	diskOK           = "ok"
	diskMissing      = "missing"
	diskUnresponsive = "unresponsive"
	diskLost         = "lost"
	diskIgnored      = "not accepted"
)

func (c *command) disksCommand() *cobra.Command {
	return rowsCommand(c, "disks", "List the disks of the volume groups, including lost disks: path, model, serial number, slot, size, use, status",
		func(ctx context.Context, cluster *cluster, _ string) ([]diskRow, *table, error) {
			answers, err := cluster.allAnswers(ctx)
			rows := diskRows(answers)
			return rows, diskTable(rows, time.Now(), c.settings.wide()), err
		})
}

// diskRows lists the disks of all nodes. A node with an incomplete report has a row that says why.
func diskRows(answers []answer) []diskRow {
	rows := []diskRow{}
	for _, a := range answers {
		if why := a.incomplete(); why != "" {
			rows = append(rows, diskRow{Node: a.node, Status: unknown, Text: why})
		}
		if a.err != nil {
			continue
		}
		for _, g := range a.page.Groups {
			for _, pv := range g.PVs {
				rows = append(rows, diskRowOf(a.node, g, pv))
			}
		}
		for _, u := range a.page.Unaccepted {
			rows = append(rows, diskRow{Node: a.node, PV: u.PV, Disk: report.Disk{Path: u.Device}, Status: diskIgnored, Text: u.Reason + ": see docs/howto/volume-groups.md#accepted-disks"})
		}
		for _, d := range a.page.LostDisks {
			if !isIgnored(a.page, d.PV) { // else it has a row
				rows = append(rows, lostRow(&a, d))
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b diskRow) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(string(a.Group), string(b.Group)), strings.Compare(a.Disk.Path, b.Disk.Path), strings.Compare(a.PV, b.PV))
	})
	return rows
}

// lostRow is about a disk that is gone with its whole group, unless it is one that cannot be read.
func lostRow(a *answer, d report.LostDisk) diskRow {
	r := diskRow{Node: a.node, Group: d.Group, PV: d.PV, Disk: d.Disk, Status: diskLost,
		Text: "the whole volume group is gone: the disk died or was taken out, or an admin removed the group"}
	if a.incomplete() != "" {
		r.Status, r.Text = unknown, "not found, and not all disks can be read"
	}
	return r
}

func diskRowOf(node string, g report.Group, pv report.PV) diskRow {
	r := diskRow{Node: node, Group: g.Name, PV: pv.UUID, Size: lvm.Bytes(pv.Extents) * g.ExtentSize, Used: lvm.Bytes(pv.Extents) * g.ExtentSize,
		Disk: report.Disk{Path: pv.Device}, Status: diskOK, Why: pv.Accepted}
	if pv.Disk != nil {
		r.Disk = *pv.Disk
	}
	for _, free := range pv.Free {
		r.Used -= lvm.Bytes(free.Count) * g.ExtentSize
	}
	volumes := map[string]bool{}
	for _, run := range pv.Allocated {
		volumes[cmp.Or(run.Owner, run.LV)] = true
	}
	r.Volumes = slices.Sorted(maps.Keys(volumes))
	switch {
	case pv.Missing:
		r.Status, r.Text = diskMissing, "the disk died or was taken out: see docs/howto/replace-disk.md"
	case pv.Unresponsive:
		r.Status, r.Text = diskUnresponsive, "the disk does not answer: see dmesg on the node"
	}
	return r
}

func diskTable(rows []diskRow, now time.Time, wide bool) *table {
	t := &table{header: []string{"NODE", "DISK", "VG", "SIZE", "USED", "MODEL", "SERIAL", "SLOT", "STATUS"}, none: "No disks: no node has a volume group."}
	if wide {
		t.header = append(t.header, "LAST SEEN", "VOLUMES", "WWN", "PV UUID", "ACCEPTED")
	}
	for _, r := range rows {
		path, status, size := r.Disk.Path, r.Status, ""
		switch r.Status {
		case diskMissing, diskLost:
			path = "was " + cmp.Or(path, "-")
		case unknown:
			status = r.Text
			if path != "" {
				path = "was " + path
			}
		}
		if known := cmp.Or(r.Size, r.Disk.Size); known > 0 {
			size = known.String()
		}
		row := []string{r.Node, path, string(r.Group), size, percent(r.Used, r.Size), r.Disk.Model, r.Disk.Serial, r.Disk.Slot, status}
		if wide {
			row = append(row, age(r.Disk.Seen, now), strings.Join(r.Volumes, ","), r.Disk.WWN, r.PV, r.Why)
		}
		t.add(row...)
	}
	return t
}
