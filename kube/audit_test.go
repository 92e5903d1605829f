package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// TestUnreadableVolumeIsNotReportedMissing: the event that advises deleting a claim is not written for an unreadable volume.
func TestUnreadableVolumeIsNotReportedMissing(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"there":            {nil, false},
		"proven absent":    {lvm.Errorf(lvm.KindNotFound, "no such volume"), true},
		"its group is not": {lvm.Errorf(lvm.KindNotLocal, "no such group"), true},
		"damaged marks":    {lvm.Errorf(lvm.KindInternal, "marked as ours, but unreadable"), false},
		"a hung disk":      {context.DeadlineExceeded, false},
	} {
		if got := isMissing(c.err); got != c.want {
			t.Errorf("%s: missing is %v", name, got)
		}
	}
}

// TestLossEventNamesGroup: the event names the volume group whose disks the admin must reconnect.
func TestLossEventNamesGroup(t *testing.T) {
	a, client := newAPI(t)
	agent := NewAgent(Config{Client: client, Node: "node-1"})
	lost := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.AnnotationVolumeGroupLostSince: "2026-01-02T03:04:05Z"}}}
	lost.Spec.CSI = &corev1.CSIPersistentVolumeSource{VolumeHandle: "uuid/pvc-1", VolumeAttributes: map[string]string{"nodelvm.io/volume-group": "vg-nvme"}}
	for _, groupIsHere := range []bool{true, false} {
		must(t, agent.reportMissing(t.Context(), "shop/data", ownClaim{uid: "1"}, lost, groupIsHere))
	}
	if len(a.events) != 2 {
		t.Errorf("%d events", len(a.events))
	}
	for _, e := range a.events {
		if !strings.Contains(e.Message, "volume group vg-nvme ") {
			t.Errorf("%s: %s", e.Reason, e.Message)
		}
	}
}

// TestRefusedEventStopsNoOtherLoss: a namespace that is being deleted takes no event. The other claims of the lost group get theirs, and their volumes
// the annotation for nodelvm-controller.
func TestRefusedEventStopsNoOtherLoss(t *testing.T) {
	answers, claims := map[string]any{}, []*corev1.PersistentVolumeClaim{}
	for i := range 20 {
		name := fmt.Sprintf("data-%d", i)
		claim, pv := kubetest.Claim(name, "local", "pvc-"+name), kubetest.VolumeOn("node-1", name)
		claim.Annotations = map[string]string{api.AnnotationSelectedNode: "node-1"}
		if i > 0 {
			claim.Namespace, pv.Spec.ClaimRef.Namespace = "shop", "shop"
		}
		answers["GET /api/v1/persistentvolumes/"+pv.Name] = pv
		answers["PATCH /api/v1/persistentvolumes/"+pv.Name] = pv
		claims = append(claims, claim)
	}
	answers["POST /api/v1/namespaces/shop/events"] = &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}
	client, sent := kubetest.RecordedClient(t, answers) // ns takes no event
	agent := NewAgent(Config{Client: client, Node: "node-1", Volumes: snapshots{}, AuditEvery: time.Millisecond,
		Holdings: func(context.Context) (lvm.ManagedVolumes, error) { return lvm.ManagedVolumes{}, nil }})
	for _, claim := range claims {
		must(t, agent.claims.Add(claim))
	}
	if err := agent.auditOnce(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("the audit returns %v", err)
	}
	for _, want := range []struct {
		request string
		times   int
	}{{"POST /api/v1/namespaces/shop/events", 19}, {"PATCH /api/v1/persistentvolumes/", 20}} {
		if n := len(slices.DeleteFunc(sent(), func(request string) bool { return !strings.HasPrefix(request, want.request) })); n != want.times {
			t.Errorf("%d times %s, want %d", n, want.request, want.times)
		}
	}
}

// TestVolumeInUseIsNotAbandoned: the event must not advise lvremove for a volume in use.
func TestVolumeInUseIsNotAbandoned(t *testing.T) {
	for phase, want := range map[corev1.PersistentVolumePhase]bool{
		corev1.VolumeReleased: true, corev1.VolumeFailed: true, corev1.VolumeBound: false, corev1.VolumeAvailable: false,
	} {
		pv := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: phase}}
		if isAbandoned(pv) {
			t.Errorf("%s, and never noted: it is abandoned", phase)
		}
		pv.Annotations = map[string]string{api.AnnotationAbandonedSince: "2026-01-02T03:04:05Z"}
		if got := isAbandoned(pv); got != want {
			t.Errorf("%s: abandoned is %v", phase, got)
		}
	}
}

// searchAmong searches for orphans among these volumes and snapshots of the node.
func searchAmong(client *kubeclient.Client, owned ...lvm.ManagedVolume) *OrphanSearch {
	return &OrphanSearch{Client: client, Holdings: func(context.Context) (lvm.ManagedVolumes, error) { return lvm.ManagedVolumes{Owned: owned}, nil }}
}

// TestVolumeBoundDuringSearchIsNoOrphan: the search sees a PersistentVolume that is created and bound while it lists the others. A volume with the
// record of a move is no orphan either: between the switch and the creation of its PersistentVolume it is the only copy of the data.
func TestVolumeBoundDuringSearchIsNoOrphan(t *testing.T) {
	owned := lvm.ManagedVolume{Volume: lvm.Volume{ID: lvm.ID{VG: "AAAAAA-0000-0000-0000-0000-0000-000001", LV: "pvc-1"}, UUID: "u", Name: "pvc-1", Claim: "shop/data"}}
	pv := &corev1.PersistentVolume{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kubeclient.KindVolume}, ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: api.DriverName, VolumeHandle: owned.ID.String()}
	claim := &corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: kubeclient.KindClaim}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "1"}}
	claim.Spec.VolumeName = "pvc-1"
	for name, comes := range map[string]bool{"bound meanwhile": true, "its PersistentVolume is lost": false, "the same in a move": false} {
		moves := strings.Contains(name, "move")
		if owned.Record = ""; moves {
			owned.Record = `{"from": "node-1"}`
		}
		made := false // at the first read of the claim
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/api/v1/persistentvolumes":
				kubetest.Reply(w, http.StatusOK, listOf())
			case r.URL.Path == "/api/v1/namespaces/shop/persistentvolumeclaims/data":
				made = comes
				kubetest.Reply(w, http.StatusOK, claim)
			case made:
				kubetest.Reply(w, http.StatusOK, pv)
			default:
				kubetest.Reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path).Status())
			}
		}))
		client := kubetest.ClientOf(t, server)
		search := searchAmong(client, owned)
		if orphans, _, err := search.Find(t.Context()); err != nil || (len(orphans) == 0) != (comes || moves) {
			t.Errorf("%s: %+v, %v", name, orphans, err)
		}
	}
}

// TestPreProvisionedContentIsNoOrphan: a snapshot is no orphan if a content of any name refers to it, on any page of the list,
// with or without the label of its node.
func TestPreProvisionedContentIsNoOrphan(t *testing.T) {
	owned := lvm.ManagedVolume{Snapshot: true, Volume: lvm.Volume{ID: lvm.ID{VG: "AAAAAA-0000-0000-0000-0000-0000-000001", LV: "snap-1"}, UUID: "u", Name: "snapshot-1"}}
	for driver, want := range map[string]int{api.DriverName: 0, "other.io": 1} {
		byHand := kubeclient.Content{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}
		byHand.Spec.Driver, byHand.Spec.Source.SnapshotHandle = driver, owned.ID.String()
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			list := &kubeclient.ContentList{TypeMeta: metav1.TypeMeta{APIVersion: kubeclient.SnapshotVersion.String(), Kind: "VolumeSnapshotContentList"}}
			switch {
			case r.URL.Path == "/api/v1/persistentvolumes":
				kubetest.Reply(w, http.StatusOK, listOf())
			case r.URL.Path != "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents":
				kubetest.Reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path).Status())
			case r.URL.Query().Get("continue") == "":
				list.Continue = "more"
				kubetest.Reply(w, http.StatusOK, list)
			case r.URL.Query().Get("labelSelector") == "":
				list.Items = []kubeclient.Content{byHand}
				kubetest.Reply(w, http.StatusOK, list)
			}
		}))
		client := kubetest.ClientOf(t, server)
		search := searchAmong(client, owned)
		if orphans, _, err := search.Find(t.Context()); err != nil || len(orphans) != want {
			t.Errorf("%s: %+v, %v", driver, orphans, err)
		}
	}
}

// TestMemberCostsOneListADay: the content of a group snapshot's member, or one made by hand, does not have the name of the snapshot's own. Once it is
// found, an audit reads it by its name, and no list of the whole cluster.
func TestMemberCostsOneListADay(t *testing.T) {
	group := lvm.GroupSnapshotName(api.PrefixGroupSnapshot + "uid")
	member := lvm.ManagedVolume{Snapshot: true, Volume: lvm.Volume{ID: lvm.ID{VG: kubetest.TestVG, LV: "s-1"}, UUID: "u", Name: lvm.MemberName(group, 0)}}
	content := kubetest.ContentOf("snapcontent-of-a-member", "snapshot-uid", member.ID.String())
	const contents = "GET /apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
	client, sent := kubetest.RecordedClient(t, map[string]any{
		contents:                        kubeclient.ContentList{Items: []kubeclient.Content{*content}},
		contents + "/" + content.Name:   content,
		"GET /api/v1/persistentvolumes": listOf(),
	})
	search := searchAmong(client, member)
	for round := range proofLasts + 1 {
		before := len(sent())
		if orphans, _, err := search.Find(t.Context()); err != nil || len(orphans) > 0 {
			t.Fatalf("%+v, %v", orphans, err)
		}
		lists := slices.DeleteFunc(sent()[before:], func(r string) bool { return r != contents && r != "GET /api/v1/persistentvolumes" })
		if first := round%proofLasts == 0; (len(lists) > 0) != first {
			t.Errorf("audit %d lists %q", round, lists)
		}
	}
}

// TestMemberOfAGroupIsNoOrphan: a snapshot is no orphan while the content of its group snapshot exists: it is there before the members' contents, and
// one that was made by hand has none. Who may not read these contents says nothing of members.
func TestMemberOfAGroupIsNoOrphan(t *testing.T) {
	of := lvm.ID{VG: kubetest.TestVG, LV: lvm.GroupSnapshotName(api.PrefixGroupSnapshot + "uid")}
	member := lvm.ManagedVolume{Snapshot: true, Of: of, Volume: lvm.Volume{ID: lvm.ID{VG: kubetest.TestVG, LV: "s-1"}, UUID: "u", Name: lvm.MemberName(of.LV, 0)}}
	const groups = "/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents"
	for name, test := range map[string]struct {
		change    func(*kubeclient.GroupContent)
		forbidden bool
		want      int
	}{
		"taken":           {func(c *kubeclient.GroupContent) { c.Status.GroupSnapshotHandle = of.String() }, false, 0},
		"being taken":     {func(c *kubeclient.GroupContent) { c.Spec.GroupSnapshotRef.UID = "uid" }, false, 0},
		"made by hand":    {func(c *kubeclient.GroupContent) { c.Spec.Source.Existing.GroupSnapshotHandle = of.String() }, false, 0},
		"another group's": {func(c *kubeclient.GroupContent) { c.Spec.GroupSnapshotRef.UID = "other" }, false, 1},
		"not readable":    {func(*kubeclient.GroupContent) {}, true, 0},
	} {
		var c kubeclient.GroupContent
		c.Name, c.Spec.Driver = "content", api.DriverName
		test.change(&c)
		answers := map[string]any{"GET /api/v1/persistentvolumes": listOf(), "GET " + groups: kubeclient.GroupContentList{Items: []kubeclient.GroupContent{c}}, "GET " + groups + "/content": &c}
		if test.forbidden {
			forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
			answers["GET "+groups], answers["GET "+groups+"/"+of.LV] = forbidden, forbidden
		}
		client, sent := kubetest.RecordedClient(t, answers)
		search := searchAmong(client, member)
		for range 2 {
			if orphans, _, err := search.Find(t.Context()); err != nil || len(orphans) != test.want {
				t.Errorf("%s: %+v, %v", name, orphans, err)
			}
		}
		if lists := slices.DeleteFunc(sent(), func(r string) bool { return r != "GET /api/v1/persistentvolumes" && r != "GET "+groups }); len(lists) != 2 {
			t.Errorf("%s: %q in two audits", name, lists)
		}
	}
}

// TestComparisonOfTheLastAudit: the status page has the result and the time of the last complete audit, and why a later one failed.
func TestComparisonOfTheLastAudit(t *testing.T) {
	a := &Agent{}
	if c := a.Comparison(); !c.Time.IsZero() || c.Error != "" || c.Unreferenced == nil || len(c.Unreferenced) != 0 {
		t.Errorf("before the first audit: %+v", c)
	}
	id := lvm.ID{VG: "u", LV: "pvc-1"}
	a.audit.keep([]Orphan{{ManagedVolume: lvm.ManagedVolume{Volume: lvm.Volume{ID: id, Group: "vg", Claim: "shop/data"}}, Reason: report.ReasonAbandoned, Why: "released"}}, nil)
	first := a.Comparison()
	a.audit.keep(nil, context.DeadlineExceeded)
	second := a.Comparison()
	if u := second.Unreferenced; first.Error != "" || first.Time.IsZero() || !second.Time.Equal(first.Time) || !strings.Contains(second.Error, "deadline") ||
		len(u) != 1 || u[0].Handle != "u/pvc-1" || u[0].FormerClaim != "shop/data" || u[0].Reason != report.ReasonAbandoned {
		t.Errorf("first %+v, then %+v", first, second)
	}
}

// TestSnapshotOfCloneIsNoOrphan: the snapshot from which a clone on another node is copied has no object. It is an orphan when its clone waits no longer.
func TestSnapshotOfCloneIsNoOrphan(t *testing.T) {
	owned := lvm.ManagedVolume{Snapshot: true, Volume: lvm.Volume{ID: lvm.ID{VG: kubetest.TestVG, LV: "s-1"}, UUID: "u", Name: api.PrefixClone + "claim-copy", Claim: "ns/copy"}}
	for name, test := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  int
	}{
		"it waits":                   {kubetest.Claim("copy", "thin", ""), 0},
		"it is bound":                {kubetest.Claim("copy", "thin", "pvc-claim-copy"), 1},
		"it is deleted":              {nil, 1},
		"another claim has its name": {&corev1.PersistentVolumeClaim{TypeMeta: kubetest.Claim("copy", "", "").TypeMeta, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "copy", UID: "later"}}, 1},
	} {
		answers := map[string]any{
			"GET /api/v1/persistentvolumes":                               listOf(),
			"GET /apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents": &kubeclient.ContentList{TypeMeta: metav1.TypeMeta{APIVersion: kubeclient.SnapshotVersion.String(), Kind: "VolumeSnapshotContentList"}},
		}
		if test.claim != nil {
			answers["GET /api/v1/namespaces/ns/persistentvolumeclaims/copy"] = test.claim
		}
		client, sent := kubetest.RecordedClient(t, answers)
		search := searchAmong(client, owned)
		orphans, _, err := search.Find(t.Context())
		if err != nil || len(orphans) != test.want {
			t.Errorf("%s: %+v, %v\n%q", name, orphans, err, sent())
		}
		for _, o := range orphans {
			if o.Reason != report.ReasonUnreferenced || !strings.Contains(o.Why, "no longer waits") {
				t.Errorf("%s: %s, %s", name, o.Reason, o.Why)
			}
		}
	}
}
