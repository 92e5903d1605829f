package main

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/inventory"
	"github.com/nodelvm/nodelvm/statuspage"
)

// nodeReport is what `nodes` shows of one node.
type nodeReport struct {
	Node       string                 `json:"node"`
	Version    string                 `json:"version,omitempty"`
	Error      string                 `json:"error,omitempty"`    // why nothing else is known
	NotReady   string                 `json:"notReady,omitempty"` // why the driver cannot work
	Groups     []groupReport          `json:"volumeGroups,omitempty"`
	Conditions []statuspage.Condition `json:"conditions,omitempty"`
}

type groupReport struct {
	inventory.Group
	Largest map[string]inventory.Bytes `json:"maximumVolumeSize,omitempty"` // the largest volume that can be made, by storage class
	Wiping  map[string]inventory.Bytes `json:"wipeBacklog,omitempty"`       // what deleted volumes hold until they are wiped, by namespace
}

func (c *command) nodesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "nodes",
		Short: "List the volume groups of each node: size, free space, maximum volume size of each storage class, conditions",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cluster, err := c.connect()
			if err != nil {
				return err
			}
			reports, err := cluster.nodeReports(cmd.Context())
			if err != nil {
				return err
			}
			return c.settings.print(cmd.OutOrStdout(), reports, func(w io.Writer, s screen) error {
				return nodeTable(reports, c.settings.wide()).write(w, s.width, s.colour)
			})
		},
	}
}

func (c *cluster) nodeReports(ctx context.Context) ([]nodeReport, error) {
	pods, err := c.driversOrNone(ctx)
	if err != nil {
		return nil, err
	}
	classes, err := c.classes(ctx)
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
	r := nodeReport{Node: a.node, Version: a.page.Version, Error: a.groupsUnread(), NotReady: a.page.NotReady, Conditions: a.page.Conditions}
	for _, g := range a.page.Groups {
		group := groupReport{Group: g, Largest: map[string]inventory.Bytes{}, Wiping: wipingIn(a.page.Volumes, g.UUID)}
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

// wipingIn sums up the deleted volumes of a group by the namespace of their claims.
func wipingIn(volumes []inventory.Volume, group string) map[string]inventory.Bytes {
	sum := map[string]inventory.Bytes{}
	for _, v := range volumes {
		if v.State == string(lvm.StateDeleting) && strings.HasPrefix(v.ID, group+"/") {
			namespace, _, _ := strings.Cut(v.Claim, "/")
			sum[cmp.Or(namespace, unknown)] += v.Size
		}
	}
	return sum
}

// nodeTable has a row for each group, and one for a node without any.
func nodeTable(reports []nodeReport, wide bool) *table {
	t := &table{header: []string{"NODE", "VG", "SIZE", "FREE", "WIPING", "MAX VOLUME", "STATUS", "VERSION"}}
	if wide {
		t.header = append(t.header, "WIPING BY NAMESPACE", "TAGS", "PVS", "THIN POOLS", "METADATA", "VG UUID")
	}
	empty := slices.Repeat([]cell{{text: "-"}}, len(t.header)-8)
	for _, r := range reports {
		if len(r.Groups) == 0 {
			health := cell{"no volume group", bad}
			if problem := r.Error + r.NotReady; problem != "" {
				health.text = problem
			}
			t.add(append([]cell{{text: r.Node}, {text: "-"}, {text: "-"}, {text: "-"}, {text: "-"}, {text: "-"}, health, {text: orDash(r.Version)}}, empty...)...)
		}
		for _, g := range r.Groups {
			row := []cell{{text: r.Node}, {text: g.Name}, {text: g.Size.String()}, {text: g.Free.String()}, {text: wipingWords(g.Wiping)}, {text: sizeWords(g.Largest)},
				groupHealth(r, g), {text: r.Version}}
			if wide {
				row = append(row, cell{text: sizeWords(g.Wiping)}, cell{text: orDash(strings.Join(g.Tags, ","))}, cell{text: strconv.Itoa(g.Disks)}, cell{text: poolWords(g.Pools)},
					cell{text: share(g.MetadataSize-g.MetadataFree, g.MetadataSize) + " of " + g.MetadataSize.String()}, cell{text: g.UUID})
			}
			t.add(row...)
		}
	}
	return t
}

// sizeWords lists sizes, each with what it is the size of.
func sizeWords(sizes map[string]inventory.Bytes) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		words = append(words, name+"="+sizes[name].String())
	}
	return orDash(strings.Join(words, ", "))
}

// wipingWords is what all namespaces' deleted volumes hold.
func wipingWords(wiping map[string]inventory.Bytes) string {
	var sum inventory.Bytes
	for _, size := range wiping {
		sum += size
	}
	if sum == 0 {
		return "-"
	}
	return sum.String()
}

func poolWords(pools []inventory.Pool) string {
	var words []string
	for _, p := range pools {
		words = append(words, p.Name+" "+share(p.Used, p.Size)+" of "+p.Size.String())
	}
	return orDash(strings.Join(words, ", "))
}

// groupHealth names the conditions of a group and of its volumes; the doctor explains them.
func groupHealth(r nodeReport, g groupReport) cell {
	found := map[string]bool{}
	for _, f := range r.Conditions {
		if f.Group == g.Name {
			found[f.Type] = true
		}
	}
	if g.Problem != "" && len(found) == 0 {
		found[string(lvm.ConditionVolumeGroupUnusable)] = true
	}
	if r.NotReady != "" {
		found["not ready"] = true
	}
	if len(found) == 0 {
		return cell{"ok", good}
	}
	return cell{strings.Join(slices.Sorted(maps.Keys(found)), ","), bad}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// share words a part of a whole in whole percents, rounded down.
func share(part, whole inventory.Bytes) string {
	if whole <= 0 {
		return "0%"
	}
	return strconv.FormatFloat(float64(int64(100*(float64(part)/float64(whole)))), 'f', -1, 64) + "%"
}
