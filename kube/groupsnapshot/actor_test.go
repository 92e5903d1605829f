package groupsnapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

const (
	here, there = "aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa", "bbbbbb-bbbb-bbbb-bbbb-bbbb-bbbb-bbbbbb"
	removed     = "cccccc-cccc-cccc-cccc-cccc-cccc-cccccc"
	groupHandle = here + "/g-0123456789abcdef0123456789abcdef"
	goneHandle  = here + "/g-00000000000000000000000000000000"
)

// disks are a node's volumes: all with a handle that begins with here.
type disks struct {
	mu     sync.Mutex
	did    []string
	failed error
	second string // another group that is here
}

func (d *disks) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.did = append(d.did, fmt.Sprintf(format, args...))
}

func (d *disks) Lookup(_ context.Context, id lvm.ID) (lvm.Volume, error) {
	if group := string(id.VG); group != here && group != d.second {
		return lvm.Volume{}, lvm.Errorf(lvm.KindNotLocal, "no such group")
	}
	if id.LV == "gone" {
		return lvm.Volume{}, lvm.Errorf(lvm.KindNotFound, "no such volume")
	}
	return lvm.Volume{ID: id}, nil
}

func (d *disks) snapshot(sources ...lvm.ID) lvm.GroupSnapshot {
	made := lvm.GroupSnapshot{ID: lvm.ID{VG: here, LV: "g-0123456789abcdef0123456789abcdef"}, Created: time.Unix(1, 0)}
	for i, source := range sources {
		made.Members = append(made.Members, lvm.Snapshot{ID: lvm.ID{VG: here, LV: fmt.Sprintf("s-%d", i)}, Source: source, Size: lvm.GiB})
	}
	return made
}

func (d *disks) CreateGroupSnapshot(_ context.Context, spec lvm.GroupSnapshotSpec, _ func(context.Context, lvm.ID) (func(), error)) (lvm.GroupSnapshot, error) {
	d.note("take %s of %d", spec.Name, len(spec.Sources))
	return d.snapshot(spec.Sources...), d.failed
}

func (d *disks) DeleteGroupSnapshot(_ context.Context, id lvm.ID) error {
	d.note("delete %s", id)
	return d.failed
}

func (d *disks) LookupGroupSnapshot(_ context.Context, id lvm.ID) (lvm.GroupSnapshot, error) {
	if id.String() == goneHandle {
		return lvm.GroupSnapshot{}, lvm.Errorf(lvm.KindNotFound, "no such group snapshot")
	}
	if id.String() != groupHandle {
		return lvm.GroupSnapshot{}, lvm.Errorf(lvm.KindNotLocal, "no such group")
	}
	return d.snapshot(lvm.ID{VG: here, LV: "pvc-1"}), nil
}

// actorOn returns an Actor whose API server notes each patch, and answers a GET of a PersistentVolume with pv.
func actorOn(t *testing.T, d *disks, pv *corev1.PersistentVolume) *Actor {
	t.Helper()
	objects := map[string]any{}
	if pv != nil {
		objects["/api/v1/persistentvolumes/"+pv.Name] = pv
	}
	return actorWith(t, d, objects)
}

// actorWith returns an Actor whose API server notes each patch, and has these objects and lists, by path.
func actorWith(t *testing.T, d *disks, objects map[string]any) *Actor {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			if object, ok := objects[r.URL.Path]; ok {
				kubetest.Reply(w, http.StatusOK, object)
				return
			}
			kubetest.Reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path).Status())
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var indented map[string]any
		if err := json.Unmarshal(body, &indented); err != nil {
			t.Error(err)
		}
		d.note("%s %s %s", r.Method, strings.TrimPrefix(r.URL.Path, "/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents/"), body)
		kubetest.Reply(w, http.StatusOK, map[string]any{"apiVersion": kubeclient.GroupSnapshotVersion.String(), "kind": kubeclient.KindGroupContent})
	}))
	client := kubetest.ClientOf(t, server)
	return New(Config{Client: client, Node: "node-1", Host: d, Sync: func(context.Context, lvm.ID) (func(), error) { return func() {}, nil }})
}

func (d *disks) expect(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	same := slices.EqualFunc(d.did, want, func(got, want string) bool { return strings.HasPrefix(got, want) })
	if !same {
		t.Errorf("did\n  %s\nwant\n  %s", strings.Join(d.did, "\n  "), strings.Join(want, "\n  "))
	}
}

func ownContent(volumes ...string) content {
	return content{name: "c", uid: "u", version: "7", node: "node-1", group: "uid", volumes: volumes}
}

// TestTake: the mark comes before the snapshots, and the status after them.
func TestTake(t *testing.T) {
	d := &disks{}
	check.Must(t, actorOn(t, d, nil).act(t.Context(), ownContent(here+"/pvc-1", here+"/pvc-2")))
	d.expect(t, `PATCH c {"metadata":{"annotations":{"`+api.AnnotationGroupBeingCreated+`":"yes"},"resourceVersion":"7"}}`,
		"take groupsnapshot-uid of 2", `PATCH c/status {"status":{"creationTime":"1970-01-01T00:00:01Z","error":null,"readyToUse":true,"volumeGroupSnapshotHandle":"`+groupHandle+`","volumeSnapshotInfoList":[{"creationTime":1000000000,"readyToUse":true,"restoreSize":1073741824,"snapshotHandle":"`)
}

// TestLabel: the node with the first volume, or with the existing group snapshot, labels a content; another node leaves it.
func TestLabel(t *testing.T) {
	for name, test := range map[string]struct {
		c    content
		here bool
	}{
		"first volume here":          {content{volumes: []string{here + "/pvc-1", there + "/pvc-2"}}, true},
		"first volume elsewhere":     {content{volumes: []string{there + "/pvc-1", here + "/pvc-2"}}, false},
		"group snapshot here":        {content{existing: groupHandle}, true},
		"group snapshot elsewhere":   {content{existing: there + "/g-1"}, false},
		"a handle of another driver": {content{volumes: []string{"vol-1"}}, false},
		"first volume gone":          {content{volumes: []string{here + "/gone"}}, false},
		"the same, deleted":          {content{volumes: []string{here + "/gone"}, deleting: true}, true},
		"group snapshot gone":        {content{existing: goneHandle}, false},
		"that one, deleted":          {content{existing: goneHandle, deleting: true}, true},
		"elsewhere, deleted":         {content{volumes: []string{there + "/pvc-1"}, deleting: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &disks{}
			test.c.name, test.c.version = "c", "7"
			check.Must(t, actorOn(t, d, nil).act(t.Context(), test.c))
			if test.here {
				d.expect(t, `PATCH c {"metadata":{"labels":{"`+api.LabelManagedBy+`":"node-1"},"resourceVersion":"7"}}`)
			} else {
				d.expect(t)
			}
		})
	}
}

// TestSeveralNodes: a group over several nodes gets an error that names the claims and nodes, and no snapshot.
func TestSeveralNodes(t *testing.T) {
	pv := kubetest.VolumeOn("node-2", "2")
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: api.DriverName, VolumeHandle: there + "/pvc-2"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "wal-0"}
	d := &disks{}
	c := ownContent(here+"/pvc-1", there+"/pvc-2", there+"/pvc-3")
	c.marked = true
	err := actorOn(t, d, pv).act(t.Context(), c)
	if lvm.KindOf(err) != lvm.KindInvalid {
		t.Errorf("the error is %v", err)
	}
	for _, words := range []string{"1 of 3 are on node node-1", "claim shop/wal-0 on node node-2", "volume " + there + "/pvc-3"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v lacks %q", err, words)
		}
	}
	d.expect(t, `PATCH c/status {"status":{"error":{"message":"node node-1: a group snapshot is of one node's volumes`, `PATCH c {"metadata":{"annotations":{"`+api.AnnotationGroupBeingCreated+`":null}}}`)
}

// TestThickVolume: the status of a group with a volume that is not thin names a thin class.
func TestThickVolume(t *testing.T) {
	d := &disks{failed: lvm.Errorf(lvm.KindInvalid, "vg/data has the layout linear, and %w", lvm.ErrThick)}
	a := actorOn(t, d, nil)
	a.NameThinClass = func(err error) error { return lvm.Errorf(lvm.KindOf(err), "%w; local-thin", err) }
	c := ownContent(here + "/pvc-1")
	c.marked = true
	if err := a.act(t.Context(), c); !errors.Is(err, lvm.ErrThick) {
		t.Errorf("the error is %v", err)
	}
	d.expect(t, "take groupsnapshot-uid of 1", `PATCH c/status {"status":{"error":{"message":"node node-1: vg/data has the layout linear, and `+lvm.ErrThick.Error()+`; local-thin"`,
		`PATCH c {"metadata":{"annotations":{"`+api.AnnotationGroupBeingCreated+`":null}}}`)
}

// TestTooManyVolumes: the number of a group's volumes is bounded.
func TestTooManyVolumes(t *testing.T) {
	d := &disks{}
	c := ownContent(slices.Repeat([]string{here + "/pvc-1"}, lvm.MaxGroupMembers+1)...)
	c.marked = true
	if err := actorOn(t, d, nil).act(t.Context(), c); lvm.KindOf(err) != lvm.KindInvalid {
		t.Errorf("the error is %v", err)
	}
	d.expect(t, "PATCH c/status", "PATCH c {")
}

// TestUncertainFailureKeepsMark: while snapshots may exist, the content stays marked, so that no object is deleted without them.
func TestUncertainFailureKeepsMark(t *testing.T) {
	d := &disks{failed: lvm.Errorf(lvm.KindBusy, "the volumes were suspended for too long")}
	c := ownContent(here + "/pvc-1")
	c.marked = true
	if err := actorOn(t, d, nil).act(t.Context(), c); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("the error is %v", err)
	}
	d.expect(t, "take groupsnapshot-uid of 1", "PATCH c/status")
}

// TestAdopt: a content that was made by hand becomes ready, if it lists the group snapshot's members.
func TestAdopt(t *testing.T) {
	for name, members := range map[string][]string{"": {here + "/s-0"}, "must list exactly these": {here + "/s-1"}} {
		d := &disks{}
		c := ownContent()
		c.existing, c.members = groupHandle, members
		err := actorOn(t, d, nil).act(t.Context(), c)
		switch {
		case name == "" && err == nil:
			d.expect(t, `PATCH c/status {"status":{"creationTime"`)
		case name == "" || err == nil || !strings.Contains(err.Error(), name):
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestDelete: the handle goes after the snapshots, and the finalizer after the handle.
func TestDelete(t *testing.T) {
	d := &disks{}
	a := actorOn(t, d, nil)
	c := ownContent(here + "/pvc-1")
	c.deleting, c.condemned, c.handle, c.finalizers = true, true, groupHandle, []string{"a", api.FinalizerGroupContent}
	check.Must(t, a.act(t.Context(), c))
	c.handle = ""
	check.Must(t, a.act(t.Context(), c))
	d.expect(t, "delete "+groupHandle, `PATCH c/status {"status":{"creationTime":null,"error":null,"readyToUse":null,"volumeGroupSnapshotHandle":null}}`,
		"delete "+here+"/g-", `PATCH c {"metadata":{"finalizers":["a"],"resourceVersion":"7"}}`)
	failing := &disks{failed: lvm.Errorf(lvm.KindInUse, "open")}
	c.handle = groupHandle
	if err := actorOn(t, failing, nil).act(t.Context(), c); lvm.KindOf(err) != lvm.KindInUse {
		t.Errorf("a refused deletion: %v", err)
	}
}

// TestDeleteUnnamed: the snapshots of a driver that was killed before it wrote the status go before the finalizer, although their volume is gone.
func TestDeleteUnnamed(t *testing.T) {
	made := "delete " + here + "/" + lvm.GroupSnapshotName("groupsnapshot-uid")
	missing := lvm.Errorf(lvm.KindNotLocal, "no such group")
	released := `PATCH c {"metadata":{"finalizers":[],"resourceVersion":"7"}}`
	for name, test := range map[string]struct {
		change func(*content)
		failed error
		did    []string
	}{
		"it may exist":               {func(*content) {}, nil, []string{made, released}},
		"another node's":             {func(*content) {}, missing, []string{made, released}},
		"its group is missing":       {func(c *content) { slices.Reverse(c.volumes) }, missing, []string{made, "PATCH c/status", "PATCH c {"}},
		"all groups are missing":     {func(c *content) { c.volumes[0] = removed + "/pvc-2" }, missing, []string{made, "PATCH c/status", "PATCH c {"}},
		"it is being taken":          {func(*content) {}, lvm.Errorf(lvm.KindBusy, "in flight"), []string{made, "PATCH c/status"}},
		"retained":                   {func(c *content) { c.retained = true }, nil, []string{released}},
		"never bound":                {func(c *content) { c.group = "" }, nil, []string{released}},
		"made by hand":               {func(c *content) { c.existing = groupHandle }, nil, []string{released}},
		"too many volumes":           {func(c *content) { c.volumes = slices.Repeat(c.volumes, lvm.MaxGroupMembers) }, nil, []string{released}},
		"a volume of another driver": {func(c *content) { c.volumes = []string{here + "/pvc-1", "vol-1"} }, nil, []string{released}},
	} {
		t.Run(name, func(t *testing.T) {
			d := &disks{failed: test.failed, second: there}
			c := ownContent(there+"/pvc-2", here+"/gone")
			c.deleting, c.condemned, c.finalizers = true, true, []string{api.FinalizerGroupContent}
			test.change(&c)
			err := actorOn(t, d, nil).act(t.Context(), c)
			if removed := slices.Contains(test.did, released); removed != (err == nil) {
				t.Errorf("the error is %v", err)
			}
			d.expect(t, test.did...)
		})
	}
}

// TestGoneContentIsForgotten: a user who creates and deletes group snapshots that fail takes no memory.
func TestGoneContentIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Config{Node: "node-1"})
		defer a.queue.ShutDown()
		a.backoff.Next("uid", time.Now())
		time.Sleep(3 * backoffMost)
		a.queue.Add(item{name: "gone"})
		a.nextContent(t.Context())
		if d := a.backoff.Get("uid"); d != 0 {
			t.Errorf("the failures of a content that is gone are remembered: %s", d)
		}
	})
}

// TestNamespacesShareQueue: a tenant with many group snapshots, which all fail, delays that of another namespace by one attempt.
func TestNamespacesShareQueue(t *testing.T) {
	d := &disks{failed: lvm.Errorf(lvm.KindBusy, "its volumes have much data to write")}
	a := actorOn(t, d, nil)
	defer a.queue.ShutDown()
	add := func(namespace, uid string) {
		o := groupContent("content-"+uid, uid, "", "Delete", false)
		o.UID, o.Labels = types.UID(uid), map[string]string{api.LabelManagedBy: "node-1"}
		o.Spec.GroupSnapshotRef.Namespace, o.Spec.Source.VolumeHandles = namespace, []string{here + "/pvc-1"}
		check.Must(t, a.own.Add(&o))
	}
	for i := range 20 {
		add("greedy", fmt.Sprintf("g%d", i))
	}
	add("shop", "s0")
	add("shop", "s1")
	for range 6 {
		a.nextContent(t.Context())
	}
	var taken []string
	for _, did := range d.did {
		if name, is := strings.CutPrefix(did, "take groupsnapshot-"); is {
			taken = append(taken, strings.TrimSuffix(name, " of 1"))
		}
	}
	if want := []string{"g0", "s0", "g1", "s1", "g2", "g3"}; !slices.Equal(taken, want) {
		t.Errorf("took %q, want %q", taken, want)
	}
}
