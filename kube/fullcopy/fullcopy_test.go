package fullcopy

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/move"
)

const (
	getClaim    = "GET /api/v1/namespaces/ns/persistentvolumeclaims/copy"
	patchClaim  = "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/copy"
	getSnapshot = "GET /apis/snapshot.storage.k8s.io/v1/namespaces/ns/volumesnapshots/nightly"
	getContent  = "GET /apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/content"
	getClass    = "GET /apis/storage.k8s.io/v1/storageclasses/thin"
	review      = "POST /apis/authentication.k8s.io/v1/tokenreviews"

	account = "system:serviceaccount:nodelvm-system:nodelvm"
	key     = "sha256:1"
)

// objects are those of a claim on node-2 that is restored from a snapshot on node-1, and the token of the driver on node-2.
type objects struct {
	claim    *corev1.PersistentVolumeClaim
	snapshot *kubeclient.Snapshot
	content  *kubeclient.Content
	class    *storagev1.StorageClass
	review   *authenticationv1.TokenReview
}

func newObjects() *objects {
	o := &objects{claim: kubetest.Claim("copy", "thin", ""), snapshot: &kubeclient.Snapshot{}, content: kubetest.ContentOf("content", "uid", kubetest.SnapshotHandle("uid"))}
	o.claim.Annotations = map[string]string{api.AnnotationSelectedNode: "node-2", api.AnnotationCopyKey: key}
	o.claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(api.SnapshotGroup), Kind: kubeclient.KindSnapshot, Name: "nightly"}
	o.claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	o.snapshot.TypeMeta = metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: kubeclient.KindSnapshot}
	o.snapshot.Namespace, o.snapshot.Name, o.snapshot.UID, o.snapshot.Status.Content = "ns", "nightly", "uid", "content"
	o.content.TypeMeta = metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: kubeclient.KindContent}
	text, _ := json.Marshal(move.Offer{Volume: kubetest.SnapshotHandle("uid"), UUID: "lv", Size: lvm.GiB, Address: "127.0.0.1:1", Key: "sha256:2"}) // strings and numbers
	o.content.Annotations = map[string]string{api.AnnotationCopyOffer: string(text)}
	o.class = kubetest.Class("thin", api.DriverName, storagev1.VolumeBindingWaitForFirstConsumer)
	o.class.Parameters = map[string]string{api.ParameterRestoreOnOtherNodes: "true"}
	o.review = &authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}}
	o.review.Status.Authenticated, o.review.Status.User.Username = true, account
	o.review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {"node-2"}}
	return o
}

// answers are what an API server with these objects says.
func (o *objects) answers() map[string]any {
	all := map[string]any{getClaim: o.claim, patchClaim: o.claim, getSnapshot: o.snapshot, getContent: o.content, getClass: o.class, review: o.review}
	maps.DeleteFunc(all, func(_ string, answer any) bool {
		switch object := answer.(type) {
		case *corev1.PersistentVolumeClaim:
			return object == nil
		case *kubeclient.Snapshot:
			return object == nil
		case *kubeclient.Content:
			return object == nil
		case *storagev1.StorageClass:
			return object == nil
		}
		return false
	})
	return all
}

// spoils are what takes a snapshot from a claim: each is a change of the objects, and words of the refusal.
var spoils = map[string]struct {
	change func(o *objects)
	says   string
}{
	"no claim":                   {func(o *objects) { o.claim = nil }, "does not exist"},
	"a later claim of that name": {func(o *objects) { o.claim.UID = "later" }, "does not exist"},
	"a claim that is deleted":    {func(o *objects) { o.claim.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, "does not wait"},
	"a bound claim":              {func(o *objects) { o.claim.Spec.VolumeName = "pvc-claim-copy" }, "does not wait"},
	"a claim on a third node":    {func(o *objects) { o.claim.Annotations[api.AnnotationSelectedNode] = "node-3" }, "does not wait"},
	"a claim of no node":         {func(o *objects) { delete(o.claim.Annotations, api.AnnotationSelectedNode) }, "does not wait"},
	"an empty claim":             {func(o *objects) { o.claim.Spec.DataSourceRef = nil }, ""},
	"a clone": {func(o *objects) {
		o.claim.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "nightly"}
	}, ""},
	"a snapshot in another namespace": {func(o *objects) { o.claim.Spec.DataSourceRef.Namespace = ptr.To("other") }, ""},
	"a populator's":                   {func(o *objects) { o.claim.Spec.DataSourceRef.APIGroup = ptr.To("example.com") }, ""},
	"no snapshot":                     {func(o *objects) { o.snapshot = nil }, "does not exist"},
	"a later snapshot of that name":   {func(o *objects) { o.snapshot.UID = "later" }, "names snapshot ns/nightly"},
	"a content that names another":    {func(o *objects) { o.content.Spec.VolumeSnapshotRef.Name = "weekly" }, "names snapshot ns/weekly"},
	"a content of another driver":     {func(o *objects) { o.content.Spec.Driver = "other.io" }, "is not one of"},
	"another snapshot's handle":       {func(o *objects) { o.content.Status.SnapshotHandle = kubetest.SnapshotHandle("other") }, "has snapshot"},
}

// TestMayPull: a peer gets a snapshot only for a claim that waits on its node, of a class that lets it, which names exactly this snapshot in its own
// namespace, and has the peer's key.
func TestMayPull(t *testing.T) {
	for name, test := range map[string]struct {
		change func(o *objects, r *move.Request)
		says   string
		kind   lvm.Kind
	}{
		"all is as it should": {func(*objects, *move.Request) {}, "", 0},
		"another node's token": {func(o *objects, _ *move.Request) {
			o.review.Status.User.Extra["authentication.kubernetes.io/node-name"][0] = "node-3"
		}, "does not wait", lvm.KindInvalid},
		"a token of no node": {func(o *objects, _ *move.Request) { o.review.Status.User.Extra = nil }, "the peer's token is not one of", lvm.KindInvalid},
		"another account": {func(o *objects, _ *move.Request) {
			o.review.Status.User.Username = "system:serviceaccount:demo:default"
		}, "the peer's token is not one of", lvm.KindInvalid},
		"a token that is not one":     {func(o *objects, _ *move.Request) { o.review.Status.Authenticated = false }, "the peer's token is not one of", lvm.KindInvalid},
		"another key":                 {func(_ *objects, r *move.Request) { r.Key = "sha256:2" }, "has not published the key", lvm.KindInvalid},
		"no key":                      {func(o *objects, r *move.Request) { r.Key = ""; delete(o.claim.Annotations, api.AnnotationCopyKey) }, "has not published the key", lvm.KindInvalid},
		"words for a claim":           {func(_ *objects, r *move.Request) { r.Claim = "copy" }, "identifies no claim", lvm.KindInvalid},
		"another UID":                 {func(_ *objects, r *move.Request) { r.Claim = move.ClaimOf("ns", "copy", "other") }, "does not exist", lvm.KindInvalid},
		"another claim":               {func(_ *objects, r *move.Request) { r.Claim = move.ClaimOf("ns", "other", "claim-copy") }, "does not exist", lvm.KindInvalid},
		"a name that no claim has":    {func(_ *objects, r *move.Request) { r.Claim = move.ClaimOf("..", "%", "claim-copy") }, "does not exist", lvm.KindInvalid},
		"another snapshot":            {func(_ *objects, r *move.Request) { r.Volume.LV = lvm.SnapshotName("other") }, "has snapshot", lvm.KindInvalid},
		"a content on another node":   {func(o *objects, _ *move.Request) { o.content.Labels[api.LabelManagedBy] = "node-3" }, "is not one of", lvm.KindInvalid},
		"a content that is not ready": {func(o *objects, _ *move.Request) { o.content.Status.ReadyToUse = false }, "is not ready", lvm.KindBusy},
		"a class without it":          {func(o *objects, _ *move.Request) { o.class.Parameters = nil }, "does not let it", lvm.KindInvalid},
		"another driver's class":      {func(o *objects, _ *move.Request) { o.class.Provisioner = "other.io" }, "does not let it", lvm.KindInvalid},
		"no class":                    {func(o *objects, _ *move.Request) { o.class = nil }, "does not let it", lvm.KindInvalid},
		"a read-only copy":            {func(o *objects, _ *move.Request) { o.claim.Spec.AccessModes[0] = corev1.ReadOnlyMany }, "does not let it", lvm.KindInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			o, r := newObjects(), newRequest()
			test.change(o, &r)
			err := mayPull(t, o, r)
			if (err == nil) != (test.says == "") || err != nil && (lvm.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("kind %d: %v", lvm.KindOf(err), err)
			}
		})
	}
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			o := newObjects()
			spoil.change(o)
			if err := mayPull(t, o, newRequest()); err == nil || !strings.Contains(err.Error(), spoil.says) && !strings.Contains(err.Error(), "does not let it") {
				t.Errorf("%v", err)
			}
		})
	}
}

func newRequest() move.Request {
	id, _ := lvm.ParseID(kubetest.SnapshotHandle("uid")) // it is one
	return move.Request{Token: "token", Key: key, Volume: id, UUID: "lv", Claim: move.ClaimOf("ns", "copy", "claim-copy")}
}

func mayPull(t *testing.T, o *objects, r move.Request) error {
	t.Helper()
	client, _ := kubetest.RecordedClient(t, o.answers())
	return New(Config{Client: client, Node: "node-1"}).MayPull(t.Context(), account, r)
}

// engine is the data side of node-2.
type engine struct {
	copies    []lvm.Volume
	snapshots []lvm.Snapshot
	fetched   []move.Offer
	progress  move.Progress
	err       error
	finished  int
	discarded int
}

func (e *engine) Fetch(_ context.Context, offer move.Offer, _ string, _ lvm.Spec) (move.Progress, error) {
	e.fetched = append(e.fetched, offer)
	return e.progress, e.err
}

func (e *engine) Finish(context.Context, lvm.ID, string) (lvm.Volume, error) {
	e.finished++
	return lvm.Volume{}, nil
}

func (e *engine) Discard(context.Context, lvm.ID, string) error {
	e.discarded++
	e.copies = nil
	return nil
}

func (*engine) Offer(sn lvm.Snapshot) move.Offer                   { return move.Offer{Volume: sn.ID.String()} }
func (*engine) Key() string                                        { return key }
func (e *engine) FullCopies(context.Context) ([]lvm.Volume, error) { return e.copies, nil }
func (*engine) ReleaseSnapshots(context.Context) error             { return nil }

func (e *engine) LookupSnapshot(_ context.Context, id lvm.ID) (lvm.Snapshot, error) {
	for _, sn := range e.snapshots {
		if sn.ID == id && sn.State == lvm.StateReady {
			return sn, nil
		}
	}
	return lvm.Snapshot{}, lvm.Errorf(lvm.KindNotFound, "no snapshot %s", id)
}

func (e *engine) CloneSnapshots(context.Context) ([]lvm.Snapshot, error) {
	return slices.DeleteFunc(slices.Clone(e.snapshots), func(sn lvm.Snapshot) bool { return sn.Claim == "" }), nil
}

func (e *engine) CreateSnapshot(_ context.Context, spec lvm.SnapshotSpec) (lvm.Snapshot, error) {
	if e.err != nil {
		return lvm.Snapshot{}, e.err
	}
	sn := lvm.Snapshot{ID: lvm.ID{VG: spec.Source.VG, LV: lvm.SnapshotName(spec.Name)}, Name: spec.Name, Source: spec.Source, Claim: spec.Claim, State: lvm.StateReady}
	e.snapshots = slices.DeleteFunc(e.snapshots, func(left lvm.Snapshot) bool { return left.ID == sn.ID })
	e.snapshots = append(e.snapshots, sn)
	return sn, nil
}

func (e *engine) DeleteSnapshot(_ context.Context, id lvm.ID) error {
	e.snapshots = slices.DeleteFunc(e.snapshots, func(sn lvm.Snapshot) bool { return sn.ID == id })
	return e.err
}

func (e *engine) agent(client *kubeclient.Client) *Agent {
	return New(Config{Client: client, Engine: e, Volumes: e, Node: "node-2", Log: slog.New(slog.DiscardHandler)})
}

func newSpec() lvm.Spec {
	return lvm.Spec{Name: "pvc-claim-copy", Claim: "ns/copy", Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin}, Required: lvm.GiB, Source: newRequest().Volume}
}

func receiving(state lvm.VolumeState) lvm.Volume {
	spec := newSpec()
	return lvm.Volume{ID: lvm.ID{VG: "here", LV: "pvc-claim-copy"}, Name: spec.Name, Claim: spec.Claim, State: state, Source: spec.Source}
}

// TestCopy: the claim gets the key, and Copy says how far the copy is until it is complete.
func TestCopy(t *testing.T) {
	o := newObjects()
	delete(o.claim.Annotations, api.AnnotationCopyKey)
	client, sent := kubetest.RecordedClient(t, o.answers())
	e := &engine{progress: move.Progress{Volume: receiving(lvm.StateReceiving), Running: true, Done: 256 * lvm.MiB, Total: lvm.GiB}}
	a := e.agent(client)
	err := a.Copy(t.Context(), newSpec())
	if lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), "node node-2 copies VolumeSnapshot ns/nightly from node node-1: 256 MiB of 1 GiB") || !slices.Contains(sent(), patchClaim) || len(e.fetched) != 1 || e.fetched[0].Key != "sha256:2" {
		t.Errorf("%v, %q, %+v", err, sent(), e.fetched)
	}
	e.progress.Problem, e.progress.Running = lvm.Errorf(lvm.KindBusy, "the source does not answer"), false
	if err := a.Copy(t.Context(), newSpec()); lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), "the source does not answer") {
		t.Errorf("%v", err)
	}
	e.progress.Problem = &move.Queue{AtOnce: 2, Others: 2}
	if err := a.Copy(t.Context(), newSpec()); lvm.KindOf(err) != lvm.KindBusy || !strings.HasSuffix(err.Error(), "; it waits for its turn: the target receives 2 volumes at a time, now 2 more") {
		t.Errorf("%v", err)
	}
	e.progress.Volume.State = lvm.StateReceived
	if err := a.Copy(t.Context(), newSpec()); err != nil || e.finished != 1 {
		t.Errorf("%v, finished %d times", err, e.finished)
	}
	// After a restart the tags say that it is complete: the source is not needed any more.
	o.snapshot, e.copies = nil, []lvm.Volume{receiving(lvm.StateReceived)}
	client, _ = kubetest.RecordedClient(t, o.answers())
	if err := e.agent(client).Copy(t.Context(), newSpec()); err != nil || e.finished != 2 || e.discarded != 0 {
		t.Errorf("%v, finished %d times", err, e.finished)
	}
}

// TestCopyRefused: a claim that may not have the snapshot gets nothing, and what was copied for it is discarded. What may become right is left.
func TestCopyRefused(t *testing.T) {
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			o := newObjects()
			spoil.change(o)
			client, _ := kubetest.RecordedClient(t, o.answers())
			e := &engine{copies: []lvm.Volume{receiving(lvm.StateReceiving)}}
			err := e.agent(client).Copy(t.Context(), newSpec())
			if kind := lvm.KindOf(err); kind != lvm.KindNotFound && kind != lvm.KindInvalid || len(e.fetched) != 0 || e.discarded != 1 {
				t.Errorf("kind %d, %d fetched, %d discarded: %v", kind, len(e.fetched), e.discarded, err)
			}
		})
	}
	for name, change := range map[string]func(o *objects){
		"no content":                      func(o *objects) { o.content = nil },
		"a content of no node":            func(o *objects) { o.content.Labels = nil },
		"a snapshot that names none":      func(o *objects) { o.snapshot.Status.Content = "" },
		"a content that is not ready":     func(o *objects) { o.content.Status.ReadyToUse = false },
		"a snapshot on this node":         func(o *objects) { o.content.Labels[api.LabelManagedBy] = "node-2" },
		"no offer":                        func(o *objects) { o.content.Annotations = nil },
		"an offer of another snapshot":    func(o *objects) { o.content.Annotations[api.AnnotationCopyOffer] = `{"volume":"x"}` },
		"an offer that cannot be read":    func(o *objects) { o.content.Annotations[api.AnnotationCopyOffer] = `{` },
		"an offer that is too long to be": func(o *objects) { o.content.Annotations[api.AnnotationCopyOffer] += strings.Repeat(" ", maxOffer) },
	} {
		t.Run(name, func(t *testing.T) {
			o := newObjects()
			change(o)
			client, _ := kubetest.RecordedClient(t, o.answers())
			e := &engine{copies: []lvm.Volume{receiving(lvm.StateReceiving)}}
			if err := e.agent(client).Copy(t.Context(), newSpec()); lvm.KindOf(err) != lvm.KindBusy || len(e.fetched) != 0 || e.discarded != 0 {
				t.Errorf("%d fetched, %d discarded: %v", len(e.fetched), e.discarded, err)
			}
		})
	}
}

// TestCopyOfAnotherSource: what was copied of another snapshot is no use, and its caller asks again.
func TestCopyOfAnotherSource(t *testing.T) {
	client, _ := kubetest.RecordedClient(t, newObjects().answers())
	other := receiving(lvm.StateReceived)
	other.Source.LV = lvm.SnapshotName("other")
	e := &engine{copies: []lvm.Volume{other}}
	if err := e.agent(client).Copy(t.Context(), newSpec()); lvm.KindOf(err) != lvm.KindBusy || e.discarded != 1 || e.finished != 0 {
		t.Errorf("%d discarded, %d finished: %v", e.discarded, e.finished, err)
	}
}

// TestLeftovers: the agent discards a copy that no claim on this node waits for, and one alone; csi-provisioner asks at once for one that is complete.
func TestLeftovers(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(o *objects)
		state   lvm.VolumeState
		waits   bool
		discard bool
		patch   bool
	}{
		"its claim waits":                      {func(*objects) {}, lvm.StateReceiving, false, false, false},
		"it is complete, and someone waits":    {func(*objects) {}, lvm.StateReceived, true, false, true},
		"it is complete":                       {func(*objects) {}, lvm.StateReceived, false, false, false},
		"someone waits":                        {func(o *objects) { o.claim = nil }, lvm.StateReceiving, true, false, false},
		"its claim is deleted":                 {func(o *objects) { o.claim = nil }, lvm.StateReceiving, false, true, false},
		"its claim is deleted, it is complete": {func(o *objects) { o.claim = nil }, lvm.StateReceived, true, true, false},
		"another claim has the name":           {func(o *objects) { o.claim.UID = "later" }, lvm.StateReceiving, false, true, false},
		"its claim is bound to another volume": {func(o *objects) { o.claim.Spec.VolumeName = "x" }, lvm.StateReceiving, false, true, false},
		"its claim has another selected node":  {func(o *objects) { o.claim.Annotations[api.AnnotationSelectedNode] = "node-3" }, lvm.StateReceiving, false, true, false},
		"its claim returned to the scheduler":  {func(o *objects) { o.claim.Annotations = nil }, lvm.StateReceiving, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObjects()
			test.change(o)
			client, sent := kubetest.RecordedClient(t, o.answers())
			e := &engine{copies: []lvm.Volume{receiving(test.state)}}
			a := e.agent(client)
			if test.waits {
				a.noteWait("pvc-claim-copy")
			}
			a.look(t.Context())
			a.look(t.Context())
			patches := len(slices.DeleteFunc(sent(), func(r string) bool { return r != patchClaim }))
			if (e.discarded > 0) != test.discard || patches != map[bool]int{true: 1}[test.patch] {
				t.Errorf("%d discarded, %d patches: %q", e.discarded, patches, sent())
			}
		})
	}
}

// TestLeftoversWithoutAPIServer: nothing is discarded while the API server says nothing of the claim.
func TestLeftoversWithoutAPIServer(t *testing.T) {
	client, _ := kubetest.RecordedClient(t, map[string]any{getClaim: "no claim"})
	e := &engine{copies: []lvm.Volume{receiving(lvm.StateReceiving)}}
	e.agent(client).look(t.Context())
	if e.discarded != 0 {
		t.Error("a copy was discarded")
	}
	if err := e.agent(client).Copy(t.Context(), newSpec()); lvm.KindOf(err) != lvm.KindBusy || e.discarded != 0 {
		t.Errorf("%v", err)
	}
}
