package groupsnapshot

import (
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// TestNext: what a node does with a content, in each state in which one can be.
func TestNext(t *testing.T) {
	new := content{group: "uid", volumes: []string{"vg/pvc-1"}, node: "node-1", finalizers: []string{api.FinalizerGroupContent}}
	for name, test := range map[string]struct {
		change func(*content)
		want   action
	}{
		"no label":                         {func(c *content) { c.node = "" }, takeLabel},
		"no label, being deleted":          {func(c *content) { c.node, c.deleting = "", true }, takeLabel},
		"another node's":                   {func(c *content) { c.node = "node-2" }, nothing},
		"new":                              {func(*content) {}, take},
		"not bound yet":                    {func(c *content) { c.group = "" }, nothing},
		"marked by a driver that ended":    {func(c *content) { c.marked = true }, take},
		"failed":                           {func(c *content) { c.failed = true }, take},
		"taken":                            {func(c *content) { c.handle, c.ready, c.marked = "h", true, true }, unmark},
		"complete":                         {func(c *content) { c.handle, c.ready = "h", true }, nothing},
		"made by hand":                     {func(c *content) { c.volumes, c.existing = nil, "h" }, adopt},
		"made by hand, ready":              {func(c *content) { c.volumes, c.existing, c.handle, c.ready = nil, "h", "h", true }, nothing},
		"deleted while it is being taken":  {func(c *content) { c.deleting, c.condemned, c.marked = true, true, true }, unmark},
		"deleted, taken, still marked":     {func(c *content) { c.deleting, c.condemned, c.marked, c.handle = true, true, true, "h" }, unmark},
		"deleted, not to be removed yet":   {func(c *content) { c.deleting, c.handle = true, "h" }, nothing},
		"deleted":                          {func(c *content) { c.deleting, c.condemned, c.handle = true, true, "h" }, remove},
		"deleted, its snapshots are gone":  {func(c *content) { c.deleting, c.condemned = true, true }, release},
		"deleted and retained":             {func(c *content) { c.deleting, c.condemned, c.handle, c.retained = true, true, "h", true }, release},
		"deleted and released":             {func(c *content) { c.deleting, c.condemned, c.finalizers = true, true, nil }, nothing},
		"made by hand, deleted unbound":    {func(c *content) { c.group, c.volumes, c.existing, c.deleting, c.handle = "", nil, "h", true, "h" }, remove},
		"made by hand, unbound, no status": {func(c *content) { c.group, c.volumes, c.existing, c.deleting = "", nil, "h", true }, release},
	} {
		t.Run(name, func(t *testing.T) {
			c := new
			test.change(&c)
			if got := c.next("node-1"); got != test.want {
				t.Errorf("the next action is %d, want %d", got, test.want)
			}
		})
	}
}

// TestKeptHandles: a node's memory holds no more handles than tell that a content has too many, neither while a list arrives nor afterwards.
func TestKeptHandles(t *testing.T) {
	var o kubeclient.GroupContent
	o.Name, o.Spec.Driver = "c", api.DriverName
	o.Spec.Source.VolumeHandles = slices.Repeat([]string{here + "/pvc-1"}, 10*lvm.MaxGroupMembers)
	o.Spec.Source.Existing.SnapshotHandles = o.Spec.Source.VolumeHandles
	stripped := strip(o.DeepCopyObject()).(*kubeclient.GroupContent)
	actor := New(Config{})
	if err := actor.own.Add(o.DeepCopyObject()); err != nil {
		t.Fatal(err)
	}
	c, there, _ := actor.own.Find(o.Name)
	if !there {
		t.Fatal("dropped the content")
	}
	for name, handles := range map[string][]string{
		"volumes": c.volumes, "members": c.members, "volumes of a list": stripped.Spec.Source.VolumeHandles, "members of a list": stripped.Spec.Source.Existing.SnapshotHandles,
	} {
		if len(handles) != lvm.MaxGroupMembers+1 || cap(handles) >= len(o.Spec.Source.VolumeHandles) {
			t.Errorf("kept %d %s with room for %d", len(handles), name, cap(handles))
		}
	}
}
