package main

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// nodeReport is what `nodes` shows about one node.
type nodeReport struct {
	Node       string             `json:"node"`
	Version    string             `json:"version,omitempty"`
	Error      string             `json:"error,omitempty"`    // why the report lacks the volume groups
	NotReady   string             `json:"notReady,omitempty"` // why the driver is not ready
	Groups     []groupReport      `json:"volumeGroups,omitempty"`
	Conditions []report.Condition `json:"conditions,omitempty"`
	Lost       []lostGroup        `json:"lostVolumeGroups,omitempty"`
	Unread     []string           `json:"unreadableDevices,omitempty"` // sentences: what may have further groups
	Ignored    []lvm.UnacceptedPV `json:"notAccepted,omitempty"`       // what the driver does not take for the node's
}

func (r nodeReport) object() (kind, name string) { return "node", r.Node }

// lostGroup is a volume group that the driver knew on its node and does not find there any more.
type lostGroup struct {
	Name   lvm.VGName `json:"name"`
	UUID   lvm.VGUUID `json:"uuid"`
	Status string     `json:"status"` // lost; or where it may still be: on a disk that cannot be read, or that the driver ignores
}

type groupReport struct {
	report.Group
	Largest map[string]lvm.Bytes `json:"maximumVolumeSize,omitempty"` // the largest volume that can be created, by storage class
	Wiping  map[string]lvm.Bytes `json:"wipeBacklog,omitempty"`       // bytes of deleted volumes that are not wiped yet, by namespace
}

func (c *command) nodesCommand() *cobra.Command {
	return rowsCommand(c, "nodes", "List the volume groups of each node: size, free space, maximum volume size (-o wide: by storage class), conditions",
		func(ctx context.Context, cluster *cluster, _ string) ([]nodeReport, *table, error) {
			reports, err := cluster.nodeReports(ctx)
			return reports, nodeTable(reports, c.settings.wide()), err
		})
}

func (c *cluster) nodeReports(ctx context.Context) ([]nodeReport, error) {
	pods, err := c.driversOrNone(ctx)
	if err != nil {
		return nil, err
	}
	classes, _, err := c.classes(ctx)
	if err != nil {
		return nil, err
	}
	reports := []nodeReport{}
	for _, a := range c.answers(ctx, pods, classes) {
		reports = append(reports, reportOf(a))
	}
	return reports, nil
}

func reportOf(a answer) nodeReport {
	if a.err != nil {
		return nodeReport{Node: a.node, Error: a.err.Error()}
	}
	r := nodeReport{Node: a.node, Version: a.page.Version, Error: a.groupsUnread(), NotReady: a.page.NotReady, Conditions: a.page.Conditions, Unread: a.page.Unread, Ignored: a.page.Unaccepted}
	if r.Error == "" {
		r.Lost = lostGroups(a.page)
	}
	for _, g := range a.page.Groups {
		group := groupReport{Group: g, Largest: map[string]lvm.Bytes{}, Wiping: wipingIn(a.page.Volumes, g.UUID)}
		for _, class := range a.page.Classes {
			for _, offer := range class.Offers {
				if offer.Group == g.Name {
					group.Largest[class.Name] = offer.Largest
				}
			}
		}
		r.Groups = append(r.Groups, group)
	}
	return r
}

// lostGroups lists the groups of lost disks, and those with conditions, that the node does not have, by name. A condition is the driver's
// word that the group is not there.
func lostGroups(page report.Node) []lostGroup {
	lost := map[lvm.VGUUID]lostGroup{}
	for _, x := range page.Conditions {
		if x.GroupUUID != "" {
			lost[x.GroupUUID] = lostGroup{x.Group, x.GroupUUID, groupLost}
		}
	}
	status := groupLost
	if len(page.Unread) > 0 {
		status = unknown
	}
	for _, d := range page.LostDisks {
		g := cmp.Or(lost[d.GroupUUID], lostGroup{d.Group, d.GroupUUID, status})
		if isIgnored(page, d.PV) {
			g.Status = diskIgnored
		}
		lost[d.GroupUUID] = g
	}
	for _, g := range page.Groups {
		delete(lost, g.UUID)
	}
	return slices.SortedFunc(maps.Values(lost), func(a, b lostGroup) int {
		return cmp.Or(strings.Compare(string(a.Name), string(b.Name)), strings.Compare(string(a.UUID), string(b.UUID)))
	})
}

// isIgnored reports whether the driver ignores a physical volume that is on the node.
func isIgnored(page report.Node, pv string) bool {
	return slices.ContainsFunc(page.Unaccepted, func(u lvm.UnacceptedPV) bool { return u.PV == pv })
}

// wipingIn sums the sizes of a group's deleted volumes by the namespace of their claims.
func wipingIn(volumes []report.Volume, group lvm.VGUUID) map[string]lvm.Bytes {
	sum := map[string]lvm.Bytes{}
	for _, v := range volumes {
		if v.State == string(lvm.StateDeleting) && strings.HasPrefix(v.ID, string(group)+"/") {
			namespace, _, _ := strings.Cut(v.Claim, "/")
			sum[cmp.Or(namespace, unknown)] += v.Size
		}
	}
	return sum
}

// nodeTable has a row for each group, lost ones included, and one for a node without a group.
func nodeTable(reports []nodeReport, wide bool) *table {
	t := &table{header: []string{"NODE", "VG", "SIZE", "FREE", "USED", "WIPING", "MAX VOLUME", "STATUS"}}
	if wide {
		t.header = append(t.header, "VERSION", "MAX VOLUME BY CLASS", "WIPING BY NAMESPACE", "TAGS", "PVS", "THIN POOLS", "METADATA", "VG UUID")
	}
	for _, r := range reports {
		if status := nodeStatus(r); status != "" {
			t.addCells(map[string]string{"NODE": r.Node, "STATUS": status, "VERSION": r.Version})
		}
		for _, g := range r.Groups {
			row := []string{r.Node, string(g.Name), g.Size.String(), g.Free.String(), percent(g.Size-g.Free, g.Size), wipingWords(g.Wiping), largestWords(g.Largest), groupStatus(r, g)}
			if wide {
				row = append(row, r.Version, sizeWords(g.Largest), sizeWords(g.Wiping), strings.Join(g.Tags, ","), strconv.Itoa(g.Disks), poolWords(g.Pools),
					percentOf(g.MetadataSize-g.MetadataFree, g.MetadataSize), string(g.UUID))
			}
			t.add(row...)
		}
		for _, name := range notMade(r) {
			t.addCells(map[string]string{"NODE": r.Node, "VG": string(name), "STATUS": words(conditionsOf(r, report.Group{Name: name})), "VERSION": r.Version})
		}
		for _, l := range r.Lost {
			found := conditionsOf(r, report.Group{Name: l.Name, UUID: l.UUID})
			found[l.Status] = true
			t.addCells(map[string]string{"NODE": r.Node, "VG": string(l.Name), "STATUS": words(found), "VERSION": r.Version, "VG UUID": string(l.UUID)})
		}
	}
	return t
}

// nodeStatus is the status in a node's own row; "": it needs none beside those of its groups.
func nodeStatus(r nodeReport) string {
	unread, none := "", "no volume group"
	if len(r.Unread) > 0 {
		unread = "cannot read a disk: " + strings.Join(r.Unread, "; ")
	}
	if len(r.Groups)+len(r.Lost)+len(notMade(r)) > 0 {
		return unread
	}
	var ignored []string
	for _, u := range r.Ignored {
		ignored = append(ignored, u.Device)
	}
	if len(ignored) > 0 {
		none += "; " + diskIgnored + ": " + strings.Join(ignored, ", ")
	}
	return cmp.Or(r.Error+r.NotReady, unread, none)
}

// notMade lists the declared groups that the driver could not create.
func notMade(r nodeReport) (names []lvm.VGName) {
	for _, x := range r.Conditions {
		if x.Group != "" && x.GroupUUID == "" && x.Volume == "" && !slices.Contains(names, x.Group) &&
			!slices.ContainsFunc(r.Groups, func(g groupReport) bool { return g.Name == x.Group }) {
			names = append(names, x.Group)
		}
	}
	return names
}

// groupLost is in the status of a group that the node does not have any more.
const groupLost = "lost"

// largestWords returns the largest volume that any class can get, or "" if the group serves no class.
func largestWords(sizes map[string]lvm.Bytes) string {
	if len(sizes) == 0 {
		return ""
	}
	return slices.Max(slices.Collect(maps.Values(sizes))).String()
}

// sizeWords lists sizes as "name=size".
func sizeWords(sizes map[string]lvm.Bytes) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		words = append(words, name+"="+sizes[name].String())
	}
	return strings.Join(words, ", ")
}

// wipingWords returns the total size of all namespaces' deleted volumes.
func wipingWords(wiping map[string]lvm.Bytes) string {
	var sum lvm.Bytes
	for _, size := range wiping {
		sum += size
	}
	if sum == 0 {
		return ""
	}
	return sum.String()
}

// percentOf returns "25% of 8 GiB"; "": there is no whole.
func percentOf(part, whole lvm.Bytes) string {
	if whole <= 0 {
		return ""
	}
	return percent(part, whole) + " of " + whole.String()
}

func poolWords(pools []report.Pool) string {
	var words []string
	for _, p := range pools {
		words = append(words, strings.TrimSpace(p.Name+" "+percentOf(p.Used, p.Size)))
	}
	return strings.Join(words, ", ")
}

// groupStatus lists the conditions of a group and of its volumes; doctor explains them.
func groupStatus(r nodeReport, g groupReport) string {
	found := conditionsOf(r, g.Group)
	if g.Problem != "" && len(found) == 0 {
		found[string(lvm.ConditionVolumeGroupUnusable)] = true
	}
	if r.NotReady != "" {
		found["not ready"] = true
	}
	return cmp.Or(words(found), healthy)
}

// conditionsOf returns what is wrong with a group and its volumes.
func conditionsOf(r nodeReport, g report.Group) map[string]bool {
	found := map[string]bool{}
	for _, f := range r.Conditions {
		if f.IsOf(g) {
			found[f.Type] = true
		}
	}
	return found
}

func words(found map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(found)), ",") }
