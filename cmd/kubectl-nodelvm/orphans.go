package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/report"
)

// orphanRow is a volume or snapshot on a node's disks without an object in this cluster, as the node's driver reports it.
type orphanRow struct {
	Node     string    `json:"node"`
	Compared time.Time `json:"compared,omitzero"` // when the driver compared its disks with the cluster
	report.Unreferenced
}

// reasonUnknown is the reason of a row for a node that reports nothing, or not everything.
const reasonUnknown report.Reason = "unknown"

// comparisonLasts is the age from which a comparison is stale; it is longer than the drivers' interval.
const comparisonLasts = 2 * time.Hour

func (c *command) orphansCommand() *cobra.Command {
	return rowsCommand(c, "orphans", "List the volumes and snapshots on the nodes that no object in the cluster refers to; removes nothing",
		func(ctx context.Context, cluster *cluster, namespace string) ([]orphanRow, *table, error) {
			answers, err := cluster.allAnswers(ctx)
			rows := ofNamespace(orphanRows(answers), namespace)
			return rows, orphanTable(rows, firstComparison(answers), c.settings.wide()), err
		})
}

// orphanRows lists what the drivers report, ordered by node. A driver that may not know all of it has a row that says why.
func orphanRows(answers []answer) []orphanRow {
	rows := []orphanRow{}
	for _, a := range answers {
		if why := cmp.Or(a.incomplete(), a.notCompared()); why != "" {
			rows = append(rows, orphanRow{Node: a.node, Unreferenced: report.Unreferenced{Reason: reasonUnknown, Text: why}})
		}
		if a.err != nil || a.page.Comparison == nil {
			continue
		}
		for _, u := range a.page.Comparison.Unreferenced {
			rows = append(rows, orphanRow{a.node, a.page.Comparison.Time, u})
		}
	}
	slices.SortStableFunc(rows, func(a, b orphanRow) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.Group, b.Group), strings.Compare(a.LV, b.LV))
	})
	return rows
}

// ofNamespace drops the orphans of the claims of other namespaces; "" means all namespaces. A node that may have more keeps its row.
func ofNamespace(rows []orphanRow, namespace string) []orphanRow {
	return slices.DeleteFunc(rows, func(r orphanRow) bool {
		return namespace != "" && r.Reason != reasonUnknown && !strings.HasPrefix(r.FormerClaim, namespace+"/")
	})
}

// notCompared returns why a driver that answers may not know all orphans on its node, or "" if it does.
func (a answer) notCompared() string {
	switch c := a.page.Comparison; {
	case c == nil:
		return "the driver does not compare its disks with the cluster: it has no API server, or is older than this plugin"
	case c.Error != "":
		return "the driver cannot compare its disks with the cluster: " + c.Error
	case c.Time.IsZero():
		return "the driver has not compared its disks with the cluster yet; it does so within minutes of its start"
	case a.page.Time.Sub(c.Time) > comparisonLasts:
		return "the driver last compared its disks with the cluster at " + c.Time.UTC().Format(time.RFC3339)
	}
	return ""
}

// firstComparison returns the time of the oldest of the drivers' comparisons, or zero if there is none.
func firstComparison(answers []answer) (first time.Time) {
	for _, a := range answers {
		if c := a.page.Comparison; c != nil && (first.IsZero() || c.Time.Before(first)) {
			first = c.Time
		}
	}
	return first
}

func orphanTable(rows []orphanRow, first time.Time, wide bool) *table {
	t := &table{header: []string{"NODE", "REASON", "VOLUME", "SIZE", "FORMER CLAIM", "DETAILS"},
		none: "No orphans: each volume and snapshot on the nodes had its object in the cluster at " + first.UTC().Format(time.RFC3339) + "."}
	if wide {
		t.header = append(t.header, "CREATED", "COMPARED", "CLUSTER", "HANDLE")
	}
	for _, r := range rows {
		size, volume := r.Size.String(), string(r.Group)+"/"+r.LV
		if r.Reason == reasonUnknown {
			size, volume = "", ""
		}
		row := []string{r.Node, string(r.Reason), volume, size, r.FormerClaim, r.Text}
		if wide {
			row = append(row, format(r.Created, time.DateOnly), format(r.Compared, time.RFC3339), r.Cluster, r.Handle)
		}
		t.add(row...)
	}
	return t
}

func format(date time.Time, layout string) string {
	if date.IsZero() {
		return ""
	}
	return date.UTC().Format(layout)
}
