package identity

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestNodeTag: a node's first change tags a group as used by this node, once; another node ignores the group and reports which
// node uses it, until an admin removes the tag.
func TestNodeTag(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	start := func(name string) *hosttest.Driver {
		t.Helper()
		d := &hosttest.Driver{}
		d.Host = node.Host(d.Config(lvm.Config{Node: name}))
		hosttest.Must(t, d.Start(t.Context()))
		return d
	}
	a := start("node-a")
	if len(node.Commands()) > 1 {
		t.Errorf("a start runs %+v", node.Commands())
	}
	var v lvm.Volume
	a.Counted(t, "the first volume", 2, func() { v = a.MustCreate(t, b.Light("one", 8*lvm.MiB)) })
	a.Counted(t, "the second one", 1, func() { a.MustCreate(t, b.Light("two", 8*lvm.MiB)) })
	if tags := node.Group(b.Group).Tags; !slices.Contains(tags, "nodelvm.node=node-a") || !slices.Contains(tags, "nodelvm.cluster="+hosttest.Cluster) || len(tags) != 3 {
		t.Errorf("tags %q", tags)
	}
	a.Stop(t)
	node.Change(b.Group, func(g *lvm.Group) {
		for i := range g.LVs {
			if g.LVs[i].Name == v.ID.LV { // only node-a may wipe and remove what it deletes
				g.LVs[i].Tags = slices.Clone(g.LVs[i].Tags)
				for j, tag := range g.LVs[i].Tags {
					g.LVs[i].Tags[j] = strings.Replace(tag, "nodelvm.state=ready", "nodelvm.state=deleting", 1)
				}
			}
		}
	})

	before := len(node.Commands())
	other := start("node-b")
	if c := other.MustCapacity(t, b.Class()); c != (lvm.Capacity{}) {
		t.Errorf("it offers %+v", c)
	}
	_, err := other.Create(t.Context(), b.Light("three", 8*lvm.MiB))
	hosttest.WantKind(t, "a volume in another node's group", err, lvm.KindInsufficientCapacity)
	if err == nil || !strings.Contains(err.Error(), "node node-a uses it") || !strings.Contains(err.Error(), "vgchange --deltag 'nodelvm.node=node-a' "+b.Group) {
		t.Errorf("%v", err)
	}
	list := other.Volumes(t)
	for _, each := range list {
		if err := other.Delete(t.Context(), each.ID); err == nil {
			t.Errorf("another node deletes %s", each.ID)
		}
		if _, err := other.Extend(t.Context(), each.ID, 64*lvm.MiB, 0); err == nil {
			t.Errorf("another node extends %s", each.ID)
		}
	}
	inv, err := other.Inventory(t.Context())
	if hosttest.Must(t, err); len(inv.Groups) != 2 || !strings.Contains(inv.Groups[1].Problem, "node node-a uses it") {
		t.Errorf("%+v", inv.Groups)
	}
	for _, c := range node.Commands()[before:] {
		if c.Name != "fullreport" {
			t.Errorf("another node runs %s %q", c.Name, c.Args)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hosttest.Must(t, other.Close(ctx))

	node.Change(b.Group, func(g *lvm.Group) { g.Tags = []string{"fast"} })
	other = start("node-b")
	other.MustCreate(t, b.Light("three", 8*lvm.MiB))
	if tags := node.Group(b.Group).Tags; !slices.Contains(tags, "nodelvm.node=node-b") {
		t.Errorf("tags %q", tags)
	}
	other.Stop(t)
}

// TestNodeTagOfAnotherCluster: a node of another cluster with the same name ignores the group. A group that has only the
// node's name is that node's, which continues to use it, and adds its cluster with the next change.
func TestNodeTagOfAnotherCluster(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	start := func(cluster string) *hosttest.Driver {
		t.Helper()
		d := &hosttest.Driver{}
		config := d.Config(lvm.Config{Node: "node-1"})
		config.Cluster = cluster
		d.Host = node.Host(config)
		hosttest.Must(t, d.Start(t.Context()))
		return d
	}
	node.Change(b.Group, func(g *lvm.Group) { g.Tags = append(g.Tags, "nodelvm.node=node-1") })
	ours := start(hosttest.Cluster)
	ours.Counted(t, "the first change", 2, func() { ours.MustCreate(t, b.Light("one", 8*lvm.MiB)) })
	if tags := node.Group(b.Group).Tags; !slices.Contains(tags, "nodelvm.cluster="+hosttest.Cluster) || len(tags) != 3 {
		t.Errorf("tags %q", tags)
	}
	ours.Stop(t)

	before := len(node.Commands())
	theirs := start("cluster-2")
	if c := theirs.MustCapacity(t, b.Class()); c != (lvm.Capacity{}) {
		t.Errorf("it offers %+v", c)
	}
	_, err := theirs.Create(t.Context(), b.Light("two", 8*lvm.MiB))
	hosttest.WantKind(t, "a volume in the group of another cluster's node", err, lvm.KindInsufficientCapacity)
	if err == nil || !strings.Contains(err.Error(), "node node-1 of the cluster "+hosttest.Cluster+" uses it") || !strings.Contains(err.Error(), "vgchange --deltag 'nodelvm.cluster="+hosttest.Cluster+"' "+b.Group) {
		t.Errorf("%v", err)
	}
	for _, c := range node.Commands()[before:] {
		if c.Name != "fullreport" {
			t.Errorf("the other cluster's node runs %s %q", c.Name, c.Args)
		}
	}
	theirs.Stop(t)
}
