package groupsnapshot

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
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

// TestForeignAndMalformedGroups: the agent of a node does nothing for the contents of other drivers, and no field of this one's contents stops it.
func TestForeignAndMalformedGroups(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	for name, test := range map[string]struct {
		change func(c *kubeclient.GroupContent)
		kept   bool
	}{
		"another driver's":          {func(c *kubeclient.GroupContent) { c.Spec.Driver = "other.io" }, false},
		"no driver":                 {func(c *kubeclient.GroupContent) { c.Spec.Driver = "" }, false},
		"no source":                 {func(c *kubeclient.GroupContent) { c.Spec.Source.VolumeHandles = nil }, true},
		"an empty handle":           {func(c *kubeclient.GroupContent) { c.Spec.Source.VolumeHandles = []string{""} }, true},
		"a huge handle":             {func(c *kubeclient.GroupContent) { c.Spec.Source.VolumeHandles = []string{huge} }, true},
		"handles of another driver": {func(c *kubeclient.GroupContent) { c.Spec.Source.VolumeHandles = []string{"vol-1", "vol-2"} }, true},
		"no group":                  {func(c *kubeclient.GroupContent) { c.Spec.GroupSnapshotRef.UID = "" }, true},
		"a status of another driver": {func(c *kubeclient.GroupContent) {
			c.Status.GroupSnapshotHandle, c.DeletionTimestamp, c.Annotations = "group-1", &metav1.Time{}, map[string]string{api.AnnotationGroupBeingDeleted: "yes"}
		}, true},
		"an existing one of another driver": {func(c *kubeclient.GroupContent) {
			c.Spec.Source.VolumeHandles, c.Spec.Source.Existing.GroupSnapshotHandle = nil, "group-1"
		}, true},
		"a huge existing one": {func(c *kubeclient.GroupContent) {
			c.Spec.Source.VolumeHandles, c.Spec.Source.Existing.GroupSnapshotHandle = nil, huge
		}, true},
	} {
		for _, label := range []string{"", "node-1"} {
			o := &kubeclient.GroupContent{}
			o.Name, o.UID, o.Spec.Driver, o.Spec.GroupSnapshotRef.UID = "c", "c", api.DriverName, "uid"
			o.Spec.Source.VolumeHandles = []string{there + "/pvc-1"}
			if label != "" {
				o.Labels = map[string]string{api.LabelManagedBy: label}
			}
			test.change(o)
			client, sent := kubetest.RecordedClient(t, nil)
			host := &disks{}
			actor := New(Config{Client: client, Node: "node-1", Host: host, Log: slog.New(slog.DiscardHandler)})
			if err := actor.own.Add(o); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if kept := actor.queue.Len() > 0; kept != test.kept {
				t.Errorf("%s: kept: %t", name, kept)
			}
			for actor.queue.Len() > 0 {
				actor.nextContent(t.Context())
			}
			if len(host.did) > 0 || !test.kept && len(sent()) > 0 {
				t.Errorf("%s, label %q: it did %q, and sent %q", name, label, host.did, sent())
			}
			actor.queue.ShutDown()
		}
	}
}
