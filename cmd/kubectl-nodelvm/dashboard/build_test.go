package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/dashboard"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/dashboard/simulated"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/report"
)

// build returns the model of a simulated node.
func build(t *testing.T, source *simulated.Source, name string) dashboard.Node {
	t.Helper()
	page, err := source.Page(context.Background(), name)
	return dashboard.BuildNode(name, page, err, source.Objects(context.Background()))
}

func find(t *testing.T, node dashboard.Node, id string) dashboard.Item {
	t.Helper()
	i := slices.IndexFunc(node.Items, func(item dashboard.Item) bool { return item.ID == id })
	if i < 0 {
		t.Fatalf("node %s has no item %s", node.Name, id)
	}
	return node.Items[i]
}

// TestDashboardPlaces: each extent of a disk is in exactly one range, with the volume, pool or wipe that occupies it.
func TestDashboardPlaces(t *testing.T) {
	node := build(t, simulated.New(1, 20), "node-0001")
	kinds := map[dashboard.Kind]int{}
	for _, disk := range node.Groups[0].Disks {
		next := int64(0)
		for _, r := range disk.Ranges {
			if r[0] != next || r[1] <= 0 {
				t.Errorf("%s: a range begins at extent %d, want %d", disk.Device, r[0], next)
			}
			next = r[0] + r[1]
			if r[2] >= 0 {
				kinds[node.Items[r[2]].Kind]++
			} else if r[2] != dashboard.ItemFree {
				t.Errorf("%s: nothing is known of extent %d", disk.Device, r[0])
			}
		}
		if next != disk.Extents {
			t.Errorf("%s: the ranges end at extent %d of %d", disk.Device, next, disk.Extents)
		}
	}
	if kinds[dashboard.KindVolume] < 10 || kinds[dashboard.KindPool] == 0 || kinds[dashboard.KindWipe] == 0 {
		t.Errorf("ranges by kind: %v", kinds)
	}
	pool := node.Groups[0].Pools[0]
	if len(pool.Items) != 8 { // four volumes, and a snapshot of each
		t.Errorf("the pool has %d items, want 8", len(pool.Items))
	}
}

// TestDashboardHealth: conditions change the health of the volumes, pools and disks that they concern, and of no others.
func TestDashboardHealth(t *testing.T) {
	source := simulated.New(2, 20)
	source.Fail("node-0001", 1)
	source.FillPool("node-0002")
	node := build(t, source, "node-0001")
	got := map[dashboard.Health]int{}
	for _, item := range node.Items {
		got[item.Health]++
	}
	if node.Health != dashboard.HealthError || got[dashboard.HealthError] == 0 || got[dashboard.HealthWarning] == 0 || got[dashboard.HealthOK] == 0 {
		t.Errorf("node %s, items %v", node.Health, got)
	}
	if disk := node.Groups[0].Disks[1]; disk.State != "missing" || disk.Device != "" || disk.LastPath != "/dev/nvme1n1" || disk.Serial != "SIM10000" || disk.Slot != "1" {
		t.Errorf("disk %+v", disk)
	}
	node = build(t, source, "node-0002")
	pool := node.Items[node.Groups[0].Pools[0].Item]
	if pool.Health != dashboard.HealthWarning || node.Health != dashboard.HealthWarning || !strings.Contains(strings.Join(pool.Text, ""), "ThinPoolNearlyFull") {
		t.Errorf("node %s, pool %+v", node.Health, pool)
	}
}

// TestDashboardFullPool: a full pool and its group have the words of the condition, which the driver reports for each volume, once.
func TestDashboardFullPool(t *testing.T) {
	source := simulated.New(1, 20)
	source.Change("node-0001", func(page *report.Node) {
		page.Groups[0].Pools = slices.Clone(page.Groups[0].Pools)
		page.Groups[0].Pools[0].State = report.PoolFull
		for _, v := range page.Volumes[:4] {
			page.Conditions = append(page.Conditions, report.Condition{Type: "ThinPoolFull", Group: page.Groups[0].Name, Pool: page.Groups[0].Pools[0].Name, Volume: v.ID, Text: "delete snapshots"})
		}
	})
	node := build(t, source, "node-0001")
	const words = "ThinPoolFull: delete snapshots"
	if pool := node.Items[node.Groups[0].Pools[0].Item]; pool.Health != dashboard.HealthError || !slices.Equal(pool.Text, []string{words}) {
		t.Errorf("pool: %s, %q", pool.Health, pool.Text)
	}
	if group := node.Groups[0]; group.Health != dashboard.HealthError || !slices.Equal(group.Messages, []string{words}) {
		t.Errorf("group: %s, %q", group.Health, group.Messages)
	}
}

// TestDashboardSilentNode: the bound volumes of a node that was never read are not "not on a disk"; a volume that a node does not report is.
func TestDashboardSilentNode(t *testing.T) {
	source := simulated.New(1, 4)
	page, err := source.Page(t.Context(), "node-0001")
	check.Must(t, err)
	objects := source.Objects(t.Context())
	objects.Claims = append(objects.Claims, dashboard.Claim{Claim: "shop/bound", Node: "node-0001", Phase: "Bound", Volume: "pvc-x"},
		dashboard.Claim{Claim: "shop/waiting", Node: "node-0001", Phase: "Pending"})
	kinds := func(node dashboard.Node) map[dashboard.Kind]int {
		got := map[dashboard.Kind]int{}
		for _, item := range node.Items {
			got[item.Kind]++
		}
		return got
	}
	silent := kinds(dashboard.BuildNode("node-0001", report.Node{}, errors.New("no answer"), objects))
	if silent[dashboard.KindUnread] != len(page.Volumes)-deleting(page)+1 || silent[dashboard.KindPending] != 1 {
		t.Errorf("of a silent node: %v", silent)
	}
	lost := page
	lost.Volumes = nil
	if got := kinds(dashboard.BuildNode("node-0001", lost, nil, objects)); got[dashboard.KindUnread] != 0 || got[dashboard.KindPending] < 2 {
		t.Errorf("of a node that lost its volumes: %v", got)
	}
}

func deleting(page report.Node) (n int) {
	for _, v := range page.Volumes {
		if v.State == "deleting" {
			n++
		}
	}
	return n
}

// TestDashboardConditionOfNoGroup: a declared group that could not be created and a disk that is not accepted have no group on the page.
func TestDashboardConditionOfNoGroup(t *testing.T) {
	for _, c := range []report.Condition{{Type: "VolumeGroupSetupFailed", Group: "vg-new", Text: "/dev/sdb is not blank"}, {Type: "PhysicalVolumeNotAccepted", Text: "the driver ignores /dev/sdx"}} {
		node := dashboard.BuildNode("node-1", report.Node{Conditions: []report.Condition{c}}, nil, dashboard.Objects{})
		if !slices.Equal(node.Problems, []string{c.Text}) || node.Health != dashboard.HealthWarning {
			t.Errorf("%s: the node is %s, with the problems %q", c.Type, node.Health, node.Problems)
		}
	}
}

// TestDashboardLostGroup: a group that is not on its node any more is a problem of the node, even if a new group has its name.
func TestDashboardLostGroup(t *testing.T) {
	page := report.Node{Node: "n"}
	page.Groups = []report.Group{{Name: "vg-data", UUID: "here"}}
	page.Conditions = []report.Condition{{Type: "PhysicalVolumeMissing", Group: "vg-data", GroupUUID: "gone", Text: "volume group vg-data is not on this node"},
		{Type: "VolumeDataMissing", Group: "vg-data", GroupUUID: "gone", Volume: "gone/pvc-1", Text: "its volume group is not on its node"}}
	node := dashboard.BuildNode("n", page, nil, dashboard.Objects{})
	if len(node.Problems) != 1 || node.Problems[0] != page.Conditions[0].Text || node.Health != dashboard.HealthError {
		t.Errorf("the node is %s, with the problems %q", node.Health, node.Problems)
	}
	if g := node.Groups[0]; g.Health != dashboard.HealthOK || len(g.Messages) > 0 {
		t.Errorf("the new group is %s: %q", g.Health, g.Messages)
	}
}

// TestDashboardFileSystems: the use of a mounted file system is between 0 and 100 percent for any numbers that the node reports.
func TestDashboardFileSystems(t *testing.T) {
	source := simulated.New(1, 1)
	for name, test := range map[string]struct {
		reported *report.FileSystem
		want     *dashboard.FileSystem
	}{
		"not mounted":     {nil, nil},
		"does not answer": {&report.FileSystem{Type: "ext4", Error: "no answer"}, nil},
		"used":            {&report.FileSystem{Type: "ext4", Size: 1000, Available: 11, Inodes: 10, InodesUsed: 9}, &dashboard.FileSystem{Type: "ext4", Space: 98, Inodes: 90}},
		"without inodes":  {&report.FileSystem{Type: "btrfs", Size: 1000, Available: 1000}, &dashboard.FileSystem{Type: "btrfs"}},
		"nonsense":        {&report.FileSystem{Type: "xfs", Size: 10, Available: -1 << 62, Inodes: 10, InodesUsed: -5}, &dashboard.FileSystem{Type: "xfs", Space: 100}},
	} {
		t.Run(name, func(t *testing.T) {
			var id string
			source.Change("node-0001", func(page *report.Node) {
				page.Volumes[0].FileSystem, page.Volumes[0].Encryption, id = test.reported, "luks2", page.Volumes[0].ID
			})
			item := find(t, build(t, source, "node-0001"), id)
			got := item.FS
			if item.Crypt != "luks2" {
				t.Errorf("encryption %q", item.Crypt)
			}
			if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// TestDashboardEncryption: an item has the encryption and key Secret of its PersistentVolume, even if the node lacks the volume.
func TestDashboardEncryption(t *testing.T) {
	for name, test := range map[string]struct {
		reported, published, secret string
		lost                        bool
		want                        string
	}{
		"published":             {"luks2", "luks2", "shop/data-key", false, "luks2 (Secret shop/data-key)"},
		"not reported":          {"", "luks2", "shop/data-key", false, "luks2 (Secret shop/data-key)"},
		"without a Secret":      {"luks2", "luks2", "", false, "luks2"},
		"only the node says it": {"luks2", "", "", false, "luks2"},
		"not encrypted":         {"", "", "", false, ""},
		"lost":                  {"", "luks2", "shop/data-key", true, "luks2 (Secret shop/data-key)"},
	} {
		t.Run(name, func(t *testing.T) {
			source := simulated.New(1, 1)
			page, err := source.Page(t.Context(), "node-0001")
			check.Must(t, err)
			objects := source.Objects(t.Context())
			i := slices.IndexFunc(objects.Volumes, func(v dashboard.Volume) bool { return v.Handle == page.Volumes[0].ID })
			objects.Volumes[i].Encryption, objects.Volumes[i].KeySecret, page.Volumes[0].Encryption = test.published, test.secret, test.reported
			if test.lost {
				page.Volumes = nil
			}
			if got := find(t, dashboard.BuildNode("node-0001", page, nil, objects), objects.Volumes[i].Handle).Crypt; got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestDashboardOtherNodesVolume: a node that reports another node's volume gets neither the volume's pods nor its object, and does
// not hide that the other node lost it.
func TestDashboardOtherNodesVolume(t *testing.T) {
	source := simulated.New(2, 5)
	var stolen report.Volume
	source.Change("node-0001", func(page *report.Node) { stolen, page.Volumes = page.Volumes[0], page.Volumes[1:] })
	source.Change("node-0002", func(page *report.Node) {
		thief := stolen
		thief.Claim = ""
		page.Volumes = append(page.Volumes, thief)
	})
	if item := find(t, build(t, source, "node-0002"), stolen.ID); item.Claim != "" || len(item.Pods) > 0 || item.Phase != "" {
		t.Errorf("the other node's item has the claim: %+v", item)
	}
	if item := find(t, build(t, source, "node-0001"), stolen.ID); item.State != "missing" || item.Health != dashboard.HealthError {
		t.Errorf("the node that lost the volume: %+v", item)
	}
}

// TestDashboardReleasedVolume: a volume that is not bound has no pods, whether the node reports it or not: a new claim may have the name.
func TestDashboardReleasedVolume(t *testing.T) {
	source := simulated.New(1, 1)
	page, err := source.Page(t.Context(), "node-0001")
	check.Must(t, err)
	objects := source.Objects(t.Context())
	i := slices.IndexFunc(objects.Volumes, func(v dashboard.Volume) bool { return v.Handle == page.Volumes[0].ID })
	v := &objects.Volumes[i]
	objects.Pods[v.Claim] = []string{"db-0"}
	for phase, pods := range map[string]int{"Bound": 1, "Released": 0} {
		v.Phase = phase
		for _, reported := range []report.Node{page, {Node: page.Node}} {
			if item := find(t, dashboard.BuildNode("node-0001", reported, nil, objects), v.Handle); len(item.Pods) != pods || item.Phase != phase {
				t.Errorf("%s: %+v", phase, item)
			}
		}
	}
}

// TestDashboardUnreferenced: a volume that no object refers to has a message that says so.
func TestDashboardUnreferenced(t *testing.T) {
	source := simulated.New(1, 3)
	var id string
	source.Change("node-0001", func(page *report.Node) {
		id = page.Volumes[0].ID
		page.Comparison = &report.Comparison{Unreferenced: []report.Unreferenced{{Reason: report.ReasonAbandoned, Handle: id, Text: "its claim uses another volume"}}}
	})
	if item := find(t, build(t, source, "node-0001"), id); item.Health != dashboard.HealthWarning || !slices.Contains(item.Text, "abandoned: its claim uses another volume") {
		t.Errorf("item %+v", item)
	}
}

// TestDashboardBounds: a document of hostile texts, or with far more entries than a node has, becomes a model of limited size whose
// ranges are all inside their disks.
func TestDashboardBounds(t *testing.T) {
	source := simulated.New(0, 0)
	source.AddHostileNode("node-1")
	source.Change("node-1", func(page *report.Node) {
		long := strings.Repeat("x", 1<<16)
		for i := range 20_000 {
			page.Volumes = append(page.Volumes, report.Volume{ID: fmt.Sprint(i), LV: long, Claim: long, Group: "vg"})
			page.Unread = append(page.Unread, long)
		}
		page.Groups = append(page.Groups, make([]report.Group, 1000)...)
	})
	node := build(t, source, "node-1")
	document, err := json.Marshal(node)
	if err != nil || len(document) > 16<<20 {
		t.Errorf("the node has %d bytes, %v", len(document), err)
	}
	if node.Omitted < 10_000 {
		t.Errorf("%d entries are counted as left out", node.Omitted)
	}
	for _, g := range node.Groups {
		for _, disk := range g.Disks {
			end := int64(0)
			for _, r := range disk.Ranges {
				if r[0] < end || r[1] <= 0 || r[1] > disk.Extents-r[0] || r[2] >= int64(len(node.Items)) {
					t.Errorf("range %v of a disk of %d extents, after %d", r, disk.Extents, end)
				}
				end = r[0] + r[1]
			}
		}
	}
}
