package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

const (
	restoreSnapshot = "GET /apis/snapshot.storage.k8s.io/v1/namespaces/ns/volumesnapshots/nightly"
	restoreClaim    = "GET /api/v1/namespaces/ns/persistentvolumeclaims/copy"
)

// restoring has a claim that restores a snapshot, and the objects that allow it.
type restoring struct {
	claim    *corev1.PersistentVolumeClaim // in the store; nil: the watch has not brought it
	live     *corev1.PersistentVolumeClaim // at the API server; nil: it does not exist
	snapshot map[string]any                // at the API server; nil: it does not exist
	contents []*kubeclient.Content         // in the store
	of       string
}

func newRestoring() *restoring {
	c := kubetest.Claim("copy", "thin", "")
	c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(kubeclient.SnapshotVersion.Group), Kind: kubeclient.KindSnapshot, Name: "nightly"}
	live := *c
	return &restoring{
		claim: c, live: &live, contents: []*kubeclient.Content{kubetest.ContentOf("a", "uid", kubetest.SnapshotHandle("uid"))}, of: kubetest.SnapshotHandle("uid"),
		snapshot: map[string]any{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": kubeclient.KindSnapshot,
			"metadata": map[string]any{"namespace": "ns", "name": "nightly", "uid": "uid"},
			"status":   map[string]any{"boundVolumeSnapshotContentName": "a"}},
	}
}

func (r *restoring) ask(t *testing.T) (requests []string, err error) {
	t.Helper()
	answers := map[string]any{}
	if r.snapshot != nil {
		answers[restoreSnapshot] = r.snapshot
	}
	if r.live != nil {
		answers[restoreClaim] = r.live
	}
	client, sent := kubetest.RecordedClient(t, answers)
	agent := NewAgent(Config{Client: client, Node: "node-1"})
	for _, c := range r.contents {
		must(t, agent.contents.Add(c))
	}
	if r.claim != nil {
		must(t, agent.claims.Add(r.claim))
	}
	of, err := lvm.ParseID(r.of)
	must(t, err)
	err = agent.MayRestore(t.Context(), "ns", "copy", "claim-copy", of)
	return sent(), err
}

const noKind = lvm.Kind(-1)

// TestRestoreNeedsReferencesInBothDirections: the driver restores a snapshot for a claim only if objects that agree in both
// directions lead from the claim to a content of this node with that snapshot. It returns a retryable error for what may be valid
// a moment later.
func TestRestoreNeedsReferencesInBothDirections(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		change func(r *restoring)
		kind   lvm.Kind
		says   string
		asked  string
	}{
		"all agree":    {func(*restoring) {}, noKind, "", restoreSnapshot},
		"made by hand": {func(r *restoring) { r.contents[0].Spec.Source.SnapshotHandle = r.of }, noKind, "", restoreSnapshot},
		"another content has the snapshot too": {func(r *restoring) {
			r.contents = append(r.contents, kubetest.ContentOf("b", "other", r.of))
		}, noKind, "", restoreSnapshot},

		"claim: no source": {func(r *restoring) { r.claim.Spec.DataSourceRef = nil }, lvm.KindInvalid, "dataSourceRef", ""},
		"claim: a clone": {func(r *restoring) {
			*r.claim.Spec.DataSourceRef = corev1.TypedObjectReference{Kind: kubeclient.KindClaim, Name: "nightly"}
		}, lvm.KindInvalid, "dataSourceRef", ""},
		"claim: a populator's":                 {func(r *restoring) { r.claim.Spec.DataSourceRef.APIGroup = ptr.To("example.com") }, lvm.KindInvalid, "dataSourceRef", ""},
		"claim: a source in another namespace": {func(r *restoring) { r.claim.Spec.DataSourceRef.Namespace = ptr.To("there") }, lvm.KindInvalid, "dataSourceRef", ""},
		"claim: another one of the name":       {func(r *restoring) { r.claim.UID, r.live.UID = "new", "new" }, lvm.KindNotFound, "does not exist", restoreClaim},
		"claim: deleted":                       {func(r *restoring) { r.claim, r.live = nil, nil }, lvm.KindNotFound, "does not exist", restoreClaim},
		"claim: being deleted":                 {func(r *restoring) { r.claim, r.live.DeletionTimestamp = nil, &now }, lvm.KindNotFound, "does not wait for a volume", restoreClaim},
		"claim: bound":                         {func(r *restoring) { r.claim, r.live.Spec.VolumeName = nil, "pvc-1" }, lvm.KindNotFound, "does not wait for a volume", restoreClaim},
		"claim: not seen yet":                  {func(r *restoring) { r.claim = nil }, lvm.KindBusy, "has not delivered it", restoreClaim},

		"snapshot: gone":            {func(r *restoring) { r.snapshot = nil }, lvm.KindNotFound, "ns/nightly", restoreSnapshot},
		"snapshot: another UID":     {func(r *restoring) { r.snapshot["metadata"].(map[string]any)["uid"] = "new" }, lvm.KindInvalid, "UID new", restoreSnapshot},
		"snapshot: another content": {func(r *restoring) { r.snapshot["status"] = map[string]any{"boundVolumeSnapshotContentName": "b"} }, lvm.KindBusy, `"b"`, restoreSnapshot},
		"snapshot: no content":      {func(r *restoring) { r.snapshot["status"] = nil }, lvm.KindBusy, `""`, restoreSnapshot},

		"content: not seen yet":       {func(r *restoring) { r.contents = nil }, lvm.KindBusy, "retry", restoreSnapshot},
		"content: not ready":          {func(r *restoring) { r.contents[0].Status.ReadyToUse = false }, lvm.KindBusy, "retry", restoreSnapshot},
		"content: another driver's":   {func(r *restoring) { r.contents[0].Spec.Driver = "ebs" }, lvm.KindBusy, "retry", restoreSnapshot},
		"content: another node's":     {func(r *restoring) { r.contents[0].Labels[api.LabelManagedBy] = "node-2" }, lvm.KindInvalid, "node-1", restoreSnapshot},
		"content: not bound yet":      {func(r *restoring) { r.contents[0].Spec.VolumeSnapshotRef.UID = "" }, lvm.KindBusy, "retry", restoreSnapshot},
		"content: retained":           {func(r *restoring) { r.contents[0].Spec.VolumeSnapshotRef.UID = "old" }, lvm.KindInvalid, "UID old", restoreSnapshot},
		"content: another namespace":  {func(r *restoring) { r.contents[0].Spec.VolumeSnapshotRef.Namespace = "x" }, lvm.KindInvalid, "x/nightly", restoreSnapshot},
		"content: another snapshot":   {func(r *restoring) { r.contents[0].Spec.VolumeSnapshotRef.Name = "x" }, lvm.KindInvalid, "ns/x", restoreSnapshot},
		"content: another handle":     {func(r *restoring) { r.contents[0].Status.SnapshotHandle = kubetest.TestVG + "/s-2" }, lvm.KindInvalid, kubetest.TestVG + "/s-2", restoreSnapshot},
		"content: two handles":        {func(r *restoring) { r.contents[0].Spec.Source.SnapshotHandle = kubetest.TestVG + "/s-2" }, lvm.KindInvalid, "two snapshot handles", restoreSnapshot},
		"content: what it had before": {func(r *restoring) { r.of = kubetest.TestVG + "/s-2" }, lvm.KindInvalid, kubetest.SnapshotHandle("uid"), restoreSnapshot},
		"another's snapshot, in the status of its own content": {func(r *restoring) { // a node's token can write that
			r.of = kubetest.SnapshotHandle("other")
			r.contents[0].Status.SnapshotHandle = r.of
		}, lvm.KindInvalid, "did not take it for VolumeSnapshot ns/nightly (UID uid)", restoreSnapshot},
		"the snapshot is in another's content": {func(r *restoring) {
			r.of = kubetest.TestVG + "/s-2"
			victim := kubetest.ContentOf("victim", "other", r.of)
			victim.Spec.VolumeSnapshotRef.Namespace = "bank"
			r.contents = append(r.contents, victim)
		}, lvm.KindInvalid, kubetest.SnapshotHandle("uid"), restoreSnapshot},
		"the content is another node's, and the snapshot this one's": {func(r *restoring) { // its watch brings no such content
			r.contents = []*kubeclient.Content{kubetest.ContentOf("victim", "other", r.of)}
			r.contents[0].Spec.VolumeSnapshotRef.Namespace = "bank"
		}, lvm.KindBusy, api.LabelManagedBy, restoreSnapshot},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRestoring()
			test.change(r)
			asked, err := r.ask(t)
			switch {
			case test.kind == noKind && err != nil:
				t.Error(err)
			case test.kind != noKind && (err == nil || lvm.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.says)):
				t.Errorf("got kind %d, %v; want %d, %q", lvm.KindOf(err), err, test.kind, test.says)
			}
			want := []string{test.asked}
			if test.asked == "" {
				want = nil
			}
			if !slices.Equal(asked, want) {
				t.Errorf("requests %v, want %v", asked, want)
			}
		})
	}
}

// TestRestoreErrorWithoutAPIServerIsRetryable: while the API server does not answer, the error is retryable.
func TestRestoreErrorWithoutAPIServerIsRetryable(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "etcd is away", http.StatusForbidden) // client-go itself would retry other codes
	}))
	client := kubetest.ClientOf(t, server)
	of, err := lvm.ParseID(kubetest.SnapshotHandle("uid"))
	must(t, err)
	agent := NewAgent(Config{Client: client, Node: "node-1"})
	if err := agent.MayRestore(t.Context(), "ns", "copy", "claim-copy", of); lvm.KindOf(err) != lvm.KindBusy {
		t.Error(err)
	}
	must(t, agent.claims.Add(newRestoring().claim))
	if err := agent.MayRestore(t.Context(), "ns", "copy", "claim-copy", of); lvm.KindOf(err) != lvm.KindBusy {
		t.Error(err)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// TestRestoreOfAMember restores a snapshot of a group snapshot: its name, and that of its content, are derived from that one's UID. A
// VolumeSnapshot of a tenant can have the name and the owner of another namespace's member.
func TestRestoreOfAMember(t *testing.T) {
	const group, volume = "group-uid", kubetest.TestVG + "/pvc-data"
	sum := sha256.Sum256([]byte(group + volume))
	name := hex.EncodeToString(sum[:])
	of := lvm.ID{VG: kubetest.TestVG, LV: lvm.SnapshotName(lvm.MemberName(lvm.GroupSnapshotName(api.PrefixGroupSnapshot+group), 1))}
	for what, change := range map[string]func(*kubeclient.Content, *kubeclient.Snapshot){
		"":               func(*kubeclient.Content, *kubeclient.Snapshot) {},
		"no owner":       func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.OwnerReferences = nil },
		"another group":  func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.OwnerReferences[0].UID = "other" },
		"another kind":   func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.OwnerReferences[0].Kind = "VolumeSnapshot" },
		"another volume": func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Spec.Source.VolumeHandle += "x" },
		"the content of a tenant's snapshot with a member's name": func(c *kubeclient.Content, s *kubeclient.Snapshot) {
			c.Name, s.Status.Content = api.PrefixContent+"uid", api.PrefixContent+"uid"
		},
		"a snapshot of others": func(c *kubeclient.Content, _ *kubeclient.Snapshot) {
			c.Status.SnapshotHandle = kubetest.SnapshotHandle("other")
		},
	} {
		c, s := kubetest.ContentOf(api.PrefixContent+name, "uid", of.String()), &kubeclient.Snapshot{}
		c.Spec.Source.VolumeHandle, c.Spec.VolumeSnapshotRef.Name = volume, api.PrefixSnapshot+name
		s.Namespace, s.Name, s.UID, s.Status.Content = "ns", api.PrefixSnapshot+name, "uid", c.Name
		s.OwnerReferences = []metav1.OwnerReference{{Kind: "VolumeGroupSnapshot", Name: "nightly", UID: group}}
		change(c, s)
		wanted, err := lvm.ParseID(c.Status.SnapshotHandle)
		must(t, err)
		if err := kubeclient.RestoreChain(kubetest.Claim("copy", "thin", ""), s, c, "node-1", wanted); (err == nil) != (what == "") || err != nil && lvm.KindOf(err) != lvm.KindInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}
