package fullcopy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/move"
)

const (
	getOrigin   = "GET /api/v1/namespaces/ns/persistentvolumeclaims/data"
	getVolume   = "GET /api/v1/persistentvolumes/pvc-data"
	patchVolume = "PATCH /api/v1/persistentvolumes/pvc-data"
	listVolumes = "GET /api/v1/persistentvolumes"
	cloneKey    = api.AnnotationCloneOffer + "claim-copy"
)

// cloning are the objects of a claim on node-2 that is cloned from a claim on node-1.
type cloning struct {
	*objects
	origin *corev1.PersistentVolumeClaim
	volume *corev1.PersistentVolume
}

func newCloning() *cloning {
	c := &cloning{newObjects(), kubetest.Claim("data", "thin", "pvc-data"), kubetest.VolumeOn("node-1", "data")}
	c.claim.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
	text, _ := json.Marshal(move.Offer{Volume: cloneSnapshot().ID.String(), UUID: "lv", Size: lvm.GiB, Address: "127.0.0.1:1", Key: "sha256:2"}) // strings and numbers
	c.volume.Annotations = map[string]string{cloneKey: string(text)}
	return c
}

func (c *cloning) answers() map[string]any {
	all := c.objects.answers()
	delete(all, getSnapshot)
	if c.origin != nil {
		all[getOrigin] = c.origin
	}
	if c.volume != nil {
		all[getVolume], all[patchVolume] = c.volume, c.volume
		all[listVolumes] = &corev1.PersistentVolumeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeList"}, Items: []corev1.PersistentVolume{*c.volume}}
	}
	return all
}

// cloneSnapshot is the snapshot of ns/data that node-1 took for ns/copy.
func cloneSnapshot() lvm.Snapshot {
	name := api.PrefixClone + "claim-copy"
	return lvm.Snapshot{
		ID: lvm.ID{VG: kubetest.TestVG, LV: lvm.SnapshotName(name)}, Name: name, Claim: "ns/copy", Source: lvm.ID{VG: kubetest.TestVG, LV: "pvc-data"}, State: lvm.StateReady,
	}
}

func cloneRequest() move.Request {
	r := newRequest()
	r.Volume = cloneSnapshot().ID
	return r
}

// sourceAgent is that of node-1, which has these snapshots.
func (c *cloning) sourceAgent(t *testing.T, e *engine) (a *Agent, sent func() []string) {
	t.Helper()
	client, sent := kubetest.RecordedClient(t, c.answers())
	a = e.agent(client)
	a.node = "node-1"
	return a, sent
}

// cloneSpoils are what takes a clone from a claim, on both nodes.
var cloneSpoils = map[string]struct {
	change func(c *cloning)
	says   string
}{
	"no claim":                         {func(c *cloning) { c.claim = nil }, "does not exist"},
	"a bound claim":                    {func(c *cloning) { c.claim.Spec.VolumeName = "pvc-claim-copy" }, "does not wait"},
	"a claim on a third node":          {func(c *cloning) { c.claim.Annotations[api.AnnotationSelectedNode] = "node-3" }, "does not wait"},
	"a clone of another namespace's":   {func(c *cloning) { c.claim.Spec.DataSourceRef.Namespace = ptr.To("other") }, ""},
	"a populator's":                    {func(c *cloning) { c.claim.Spec.DataSourceRef.APIGroup = ptr.To("example.com") }, ""},
	"no origin":                        {func(c *cloning) { c.origin = nil }, "does not exist"},
	"a later origin of that name":      {func(c *cloning) { c.origin.UID = "later" }, "names claim ns/data"},
	"a volume of another claim":        {func(c *cloning) { c.volume.Spec.ClaimRef.Name = "other" }, "names claim ns/other"},
	"a volume of another driver":       {func(c *cloning) { c.volume.Spec.CSI.Driver = "other.io" }, "is not a volume of"},
	"an origin that is bound no more":  {func(c *cloning) { c.volume.Spec.ClaimRef.UID = "" }, "is not bound"},
	"another volume's handle":          {func(c *cloning) { c.volume.Spec.CSI.VolumeHandle = kubetest.TestVG + "/pvc-other" }, ""},
	"a handle that no volume can have": {func(c *cloning) { c.volume.Spec.CSI.VolumeHandle = "x" }, "which is not one of this driver's"},
}

// TestMayPullClone: a peer gets the snapshot of a volume only for the claim for which it was taken, while that waits on its node, and names the claim
// whose volume it is of, which is on this node.
func TestMayPullClone(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *cloning, e *engine, r *move.Request)
		says   string
	}{
		"all is as it should": {func(*cloning, *engine, *move.Request) {}, ""},
		"another key":         {func(_ *cloning, _ *engine, r *move.Request) { r.Key = "sha256:2" }, "has not published the key"},
		"a class without it":  {func(c *cloning, _ *engine, _ *move.Request) { c.class.Parameters = nil }, "does not let it"},
		"a read-only copy":    {func(c *cloning, _ *engine, _ *move.Request) { c.claim.Spec.AccessModes[0] = corev1.ReadOnlyMany }, "does not let it"},
		"the volume itself":   {func(_ *cloning, _ *engine, r *move.Request) { r.Volume = cloneSnapshot().Source }, "no snapshot"},
		"a user's snapshot of it": {func(_ *cloning, e *engine, _ *move.Request) {
			e.snapshots[0].Name, e.snapshots[0].Claim = api.PrefixSnapshot+"uid", ""
		}, "was not taken for claim"},
		"another clone's snapshot": {func(_ *cloning, e *engine, _ *move.Request) { e.snapshots[0].Name = api.PrefixClone + "other" }, "was not taken for claim"},
		"that of another claim":    {func(_ *cloning, e *engine, _ *move.Request) { e.snapshots[0].Claim = "other/copy" }, "was not taken for claim"},
		"of another volume":        {func(_ *cloning, e *engine, _ *move.Request) { e.snapshots[0].Source.LV = "pvc-other" }, "was not taken for claim"},
		"none was taken":           {func(_ *cloning, e *engine, _ *move.Request) { e.snapshots = nil }, "no snapshot"},
		"a volume on another node": {func(c *cloning, _ *engine, _ *move.Request) { c.volume = kubetest.VolumeOn("node-3", "data") }, "node affinity to node \"node-1\" only"},
	} {
		t.Run(name, func(t *testing.T) {
			c, e, r := newCloning(), &engine{snapshots: []lvm.Snapshot{cloneSnapshot()}}, cloneRequest()
			test.change(c, e, &r)
			a, _ := c.sourceAgent(t, e)
			err := a.MayPull(t.Context(), account, r)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v", err)
			}
		})
	}
	for name, spoil := range cloneSpoils {
		t.Run(name, func(t *testing.T) {
			c := newCloning()
			spoil.change(c)
			a, _ := c.sourceAgent(t, &engine{snapshots: []lvm.Snapshot{cloneSnapshot()}})
			if err := a.MayPull(t.Context(), account, cloneRequest()); err == nil || !strings.Contains(err.Error(), spoil.says) && !strings.Contains(err.Error(), "does not let it") {
				t.Errorf("%v", err)
			}
		})
	}
}

// cloneSpec is what csi-provisioner asks for: the source is the volume, not the snapshot of it.
func cloneSpec() lvm.Spec {
	spec := newSpec()
	spec.Source = cloneSnapshot().Source
	return spec
}

// TestCopyClone: the target copies the snapshot that the offer on the source's PersistentVolume names, for this clone.
func TestCopyClone(t *testing.T) {
	c := newCloning()
	client, _ := kubetest.RecordedClient(t, c.answers())
	e := &engine{progress: move.Progress{Volume: receiving(lvm.StateReceiving), Running: true, Done: 256 * lvm.MiB, Total: lvm.GiB}}
	err := e.agent(client).Copy(t.Context(), cloneSpec())
	if lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), "node node-2 copies claim ns/data from node node-1: 256 MiB of 1 GiB") || len(e.fetched) != 1 || e.fetched[0].Volume != cloneSnapshot().ID.String() {
		t.Errorf("%v, %+v", err, e.fetched)
	}
	for name, spoil := range cloneSpoils {
		t.Run(name, func(t *testing.T) {
			c := newCloning()
			spoil.change(c)
			client, _ := kubetest.RecordedClient(t, c.answers())
			had := receiving(lvm.StateReceiving)
			had.Source = cloneSpec().Source
			e := &engine{copies: []lvm.Volume{had}}
			err := e.agent(client).Copy(t.Context(), cloneSpec())
			if kind := lvm.KindOf(err); kind != lvm.KindNotFound && kind != lvm.KindInvalid || len(e.fetched) != 0 || e.discarded != 1 {
				t.Errorf("kind %d, %d fetched, %d discarded: %v", kind, len(e.fetched), e.discarded, err)
			}
		})
	}
	for name, change := range map[string]func(c *cloning){
		"no PersistentVolume at the moment": func(c *cloning) { c.volume = nil },
		"a volume on this node":             func(c *cloning) { c.volume.Spec.NodeAffinity = kubetest.VolumeOn("node-2", "data").Spec.NodeAffinity },
		"no offer":                          func(c *cloning) { c.volume.Annotations = nil },
		"an offer to another clone": func(c *cloning) {
			c.volume.Annotations = map[string]string{api.AnnotationCloneOffer + "other": c.volume.Annotations[cloneKey]}
		},
		"an offer of another snapshot": func(c *cloning) {
			c.volume.Annotations[cloneKey] = fmt.Sprintf(`{"volume":%q}`, kubetest.SnapshotHandle("uid"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloning()
			change(c)
			client, _ := kubetest.RecordedClient(t, c.answers())
			e := &engine{}
			if err := e.agent(client).Copy(t.Context(), cloneSpec()); lvm.KindOf(err) != lvm.KindBusy || len(e.fetched) != 0 {
				t.Errorf("%d fetched: %v", len(e.fetched), err)
			}
		})
	}
}

// TestOfferClone: the source takes one snapshot for a clone that waits on another node, with the claim in its record, and says how to copy it; what cannot
// be taken is said on the claim.
func TestOfferClone(t *testing.T) {
	for name, test := range map[string]struct {
		change    func(c *cloning, e *engine)
		snapshots int
		sent      string // the last request; "": none was sent for the clone
		again     bool   // it is tried again
	}{
		"a clone on another node": {func(*cloning, *engine) {}, 1, patchVolume, false},
		"the snapshot exists":     {func(_ *cloning, e *engine) { e.snapshots = []lvm.Snapshot{cloneSnapshot()} }, 1, patchVolume, false},
		"all is said already": {func(c *cloning, e *engine) {
			e.snapshots = []lvm.Snapshot{cloneSnapshot()}
			c.volume.Annotations[cloneKey] = offered(cloneSnapshot())
		}, 1, getVolume, false},
		"a clone on this node":     {func(c *cloning, _ *engine) { c.claim.Annotations[api.AnnotationSelectedNode] = "node-1" }, 0, getClaim, false},
		"a clone of no node":       {func(c *cloning, _ *engine) { c.claim.Annotations = nil }, 0, getClaim, false},
		"a clone that is deleted":  {func(c *cloning, _ *engine) { c.claim = nil }, 0, getClaim, false},
		"a volume on another node": {func(c *cloning, _ *engine) { c.volume = kubetest.VolumeOn("node-3", "data") }, 0, getVolume, false},
		"less than the volume has": {func(c *cloning, _ *engine) {
			c.volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		}, 0, getVolume, false},
		"a volume that moves":            {func(c *cloning, _ *engine) { c.volume.Annotations[api.AnnotationMoveRecord] = "{}" }, 0, getVolume, true},
		"as many clones as there may be": {func(_ *cloning, e *engine) { e.snapshots = otherClones(maxClones, "pvc-data") }, maxClones, getVolume, true},
		"as many that are unfinished":    {func(_ *cloning, e *engine) { e.snapshots = unfinished(otherClones(maxClones, "pvc-data")) }, maxClones, getVolume, true},
		"one less, and its own unfinished": {func(_ *cloning, e *engine) {
			e.snapshots = unfinished(append(otherClones(maxClones-1, "pvc-data"), cloneSnapshot()))
		}, maxClones, patchVolume, false},
		"one less":                  {func(_ *cloning, e *engine) { e.snapshots = otherClones(maxClones-1, "pvc-data") }, maxClones, patchVolume, false},
		"as many of another volume": {func(_ *cloning, e *engine) { e.snapshots = otherClones(maxClones, "pvc-other") }, maxClones + 1, patchVolume, false},
		"as many snapshots of users": {func(_ *cloning, e *engine) {
			e.snapshots = otherClones(maxClones, "pvc-data")
			for i := range e.snapshots {
				e.snapshots[i].Claim = ""
			}
		}, maxClones + 1, patchVolume, false},
		"a volume that cannot have one":    {func(_ *cloning, e *engine) { e.err = lvm.Errorf(lvm.KindInvalid, "only a thin volume") }, 0, postEvent, false},
		"a pool that has no capacity":      {func(_ *cloning, e *engine) { e.err = lvm.Errorf(lvm.KindInsufficientCapacity, "the pool") }, 0, postEvent, true},
		"a file system that is frozen now": {func(_ *cloning, e *engine) { e.err = lvm.Errorf(lvm.KindBusy, "frozen") }, 0, getVolume, true},
	} {
		t.Run(name, func(t *testing.T) {
			c, e := newCloning(), &engine{}
			claim := c.claim
			delete(c.volume.Annotations, cloneKey)
			test.change(c, e)
			a, sent := c.sourceAgent(t, e)
			a.OfferClone(claim)
			a.offerClones(t.Context())
			if all := sent(); len(all) == 0 || all[len(all)-1] != test.sent || len(e.snapshots) != test.snapshots || a.clones["ns/copy"] != test.again {
				t.Errorf("%q, %+v, again: %v", all, e.snapshots, a.clones)
			}
			if test.snapshots == 1 && (e.snapshots[0].ID != cloneSnapshot().ID || e.snapshots[0].Claim != "ns/copy" || e.snapshots[0].Source != cloneSnapshot().Source) {
				t.Errorf("%+v", e.snapshots[0])
			}
		})
	}
}

const postEvent = "POST /api/v1/namespaces/ns/events"

func offered(sn lvm.Snapshot) string {
	text, _ := (&Agent{engine: &engine{}}).Offer(sn) // strings and numbers
	return text
}

// otherClones are the snapshots of other clones of a volume. None is offered: the PersistentVolume could not be changed.
func otherClones(n int, volume string) (all []lvm.Snapshot) {
	for i := range n {
		name := fmt.Sprintf("%sother-%d", api.PrefixClone, i)
		all = append(all, lvm.Snapshot{
			ID: lvm.ID{VG: kubetest.TestVG, LV: lvm.SnapshotName(name)}, Name: name, Claim: "ns/other", Source: lvm.ID{VG: kubetest.TestVG, LV: volume}, State: lvm.StateReady,
		})
	}
	return all
}

// unfinished makes snapshots those that a failed command left.
func unfinished(all []lvm.Snapshot) []lvm.Snapshot {
	for i := range all {
		all[i].State = lvm.StateCreating
	}
	return all
}

// TestClonesRemoved: the snapshot of a clone, and its offer before, are removed when the clone waits on no other node, whatever became of it. No other
// snapshot is.
func TestClonesRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(c *cloning)
		removed bool
		sent    string // the last request
	}{
		"the clone waits":                   {func(*cloning) {}, false, getClaim},
		"it waits on a third node":          {func(c *cloning) { c.claim.Annotations[api.AnnotationSelectedNode] = "node-3" }, false, getClaim},
		"it is bound":                       {func(c *cloning) { c.claim.Spec.VolumeName = "pvc-claim-copy" }, true, patchVolume},
		"it is deleted":                     {func(c *cloning) { c.claim = nil }, true, patchVolume},
		"it is being deleted":               {func(c *cloning) { c.claim.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, true, patchVolume},
		"another claim has the name":        {func(c *cloning) { c.claim.UID = "later" }, true, patchVolume},
		"it returned to the scheduler":      {func(c *cloning) { c.claim.Annotations = nil }, true, patchVolume},
		"it came to this node":              {func(c *cloning) { c.claim.Annotations[api.AnnotationSelectedNode] = "node-1" }, true, patchVolume},
		"the origin is gone, too":           {func(c *cloning) { c.claim, c.origin, c.volume = nil, nil, nil }, true, ""},
		"the origin has another name":       {func(c *cloning) { c.claim = nil; c.volume.Name = "adopted" }, true, "PATCH /api/v1/persistentvolumes/adopted"},
		"the name is another volume's":      {func(c *cloning) { c.claim = nil; c.volume.Spec.CSI.VolumeHandle = "x" }, true, listVolumes},
		"the offer is removed already":      {func(c *cloning) { c.claim, c.volume.Annotations = nil, nil }, true, getVolume},
		"the API server does not say so":    {func(c *cloning) { c.claim.Kind = "" }, false, getClaim},
		"the origin alone is being deleted": {func(c *cloning) { c.origin.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, false, getClaim},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloning()
			test.change(c)
			user := lvm.Snapshot{ID: lvm.ID{VG: kubetest.TestVG, LV: lvm.SnapshotName("user's")}, Name: "user's", Source: cloneSnapshot().Source, State: lvm.StateReady}
			e := &engine{snapshots: []lvm.Snapshot{user, cloneSnapshot()}}
			answers := c.answers()
			if c.volume != nil && c.volume.Name == "adopted" {
				answers[test.sent] = c.volume
				delete(answers, getVolume)
			}
			if c.claim != nil && c.claim.Kind == "" {
				answers[getClaim] = "no claim"
			}
			if c.volume == nil {
				answers[listVolumes] = &corev1.PersistentVolumeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeList"}}
			}
			client, sent := kubetest.RecordedClient(t, answers)
			a := e.agent(client)
			a.node = "node-1"
			a.checkClones(t.Context())
			all := sent()
			if len(e.snapshots) != map[bool]int{true: 1, false: 2}[test.removed] || e.snapshots[0].ID != user.ID || test.sent != "" && all[len(all)-1] != test.sent {
				t.Errorf("%+v\n%q", e.snapshots, all)
			}
		})
	}
}

// TestUnfinishedCloneRemoved: what a failed command left of the snapshot of a clone goes with the clone, not only at the driver's next start.
func TestUnfinishedCloneRemoved(t *testing.T) {
	c := newCloning()
	c.claim, c.volume.Annotations = nil, nil
	e := &engine{snapshots: unfinished([]lvm.Snapshot{cloneSnapshot()})}
	a, _ := c.sourceAgent(t, e)
	a.checkClones(t.Context())
	if len(e.snapshots) != 0 {
		t.Errorf("%+v", e.snapshots)
	}
}

// TestCloneRemovalFails: while the API server refuses to remove the offer, the snapshot stays, and is found again.
func TestCloneRemovalFails(t *testing.T) {
	c := newCloning()
	c.claim = nil
	answers := c.answers()
	answers[patchVolume] = "no PersistentVolume"
	client, sent := kubetest.RecordedClient(t, answers)
	e := &engine{snapshots: []lvm.Snapshot{cloneSnapshot()}}
	a := e.agent(client)
	a.node = "node-1"
	a.checkClones(t.Context())
	if len(e.snapshots) != 1 || !slices.Contains(sent(), patchVolume) {
		t.Errorf("%+v, %q", e.snapshots, sent())
	}
}
