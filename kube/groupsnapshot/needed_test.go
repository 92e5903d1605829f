package groupsnapshot

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// neededBy are the other objects of a test.
type neededBy struct {
	groups    []kubeclient.GroupContent
	snapshots []kubeclient.Content
	member    kubeclient.Snapshot // ns/nightly
}

func (n neededBy) objects() map[string]any {
	objects := map[string]any{
		"/apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents": kubeclient.GroupContentList{Items: n.groups},
		"/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents":           kubeclient.ContentList{Items: n.snapshots},
	}
	if n.member.Name != "" {
		objects["/apis/snapshot.storage.k8s.io/v1/namespaces/ns/volumesnapshots/nightly"] = n.member
	}
	return objects
}

func groupContent(name, groupUID, handle, policy string, deleted bool) (c kubeclient.GroupContent) {
	c.Name, c.Spec.Driver, c.Spec.DeletionPolicy = name, api.DriverName, policy
	c.Spec.GroupSnapshotRef.UID, c.Status.GroupSnapshotHandle = types.UID(groupUID), handle
	if now := metav1.Now(); deleted {
		c.DeletionTimestamp = &now
	}
	return c
}

// TestDeleteKeepsWhatIsNeeded: a group snapshot is deleted only if every content that has it, or one of its snapshots, is being deleted with it. A
// node's token can write the handle of another namespace's group snapshot into the status of a content.
func TestDeleteKeepsWhatIsNeeded(t *testing.T) {
	handle := here + "/" + lvm.GroupSnapshotName(api.PrefixGroupSnapshot+"uid")
	member := there + "/" + lvm.SnapshotName(lvm.MemberName(lvm.GroupSnapshotName(api.PrefixGroupSnapshot+"uid"), 1))
	own := groupContent("c", "uid", handle, "Delete", true)
	byHand := groupContent("by-hand", "second", "", "Delete", false)
	byHand.Spec.Source.Existing.GroupSnapshotHandle = handle
	anothers := groupContent("other", "uid", handle, "Delete", false)
	anothers.Spec.Driver = "ebs.example.com"
	ofMember := *kubetest.ContentOf("one", "snapshot-uid", "")
	ofMember.Spec.Source.SnapshotHandle = member
	taken := *kubetest.ContentOf("of-the-controller", "snapshot-uid", member)
	for name, test := range map[string]struct {
		neededBy
		by string
	}{
		"its content alone":                       {neededBy{groups: []kubeclient.GroupContent{own}}, ""},
		"no content":                              {neededBy{}, ""},
		"others have other ones":                  {neededBy{groups: []kubeclient.GroupContent{own, groupContent("d", "other", groupHandle, "Delete", false)}}, ""},
		"another driver's":                        {neededBy{groups: []kubeclient.GroupContent{own, anothers}}, ""},
		"retained in the meantime":                {neededBy{groups: []kubeclient.GroupContent{groupContent("c", "uid", handle, "Retain", true)}}, "VolumeGroupSnapshotContent c"},
		"another content has its handle":          {neededBy{groups: []kubeclient.GroupContent{own, groupContent("d", "other", handle, "Delete", false)}}, "VolumeGroupSnapshotContent d"},
		"it is another's, whose status was lost":  {neededBy{groups: []kubeclient.GroupContent{groupContent("victim", "uid", "", "Delete", false)}}, "VolumeGroupSnapshotContent victim"},
		"given to a content by hand":              {neededBy{groups: []kubeclient.GroupContent{own, byHand}}, "VolumeGroupSnapshotContent by-hand"},
		"a snapshot is given to a content":        {neededBy{groups: []kubeclient.GroupContent{own}, snapshots: []kubeclient.Content{ofMember}}, "VolumeSnapshotContent one"},
		"the contents of the snapshot controller": {neededBy{groups: []kubeclient.GroupContent{own}, snapshots: []kubeclient.Content{taken}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for step, written := range map[string]string{"named by the status": handle, "not named": ""} {
				d := &disks{}
				c := ownContent(here + "/pvc-1")
				c.deleting, c.condemned, c.handle, c.finalizers = true, true, written, []string{api.FinalizerGroupContent}
				err := actorWith(t, d, test.objects()).act(t.Context(), c)
				switch {
				case test.by == "" && (err != nil || d.did[0] != "delete "+handle):
					t.Errorf("%s: %v, did %q", step, err, d.did)
				case test.by != "" && (lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), test.by+" has it") || !strings.HasPrefix(d.did[0], "PATCH c/status")):
					t.Errorf("%s: %v, did %q", step, err, d.did)
				}
			}
		})
	}
}

// TestDeleteWithMembersGivenByHand: the snapshot controller deletes the contents of the members only after the VolumeGroupSnapshot, which waits for
// the deletion of the group snapshot. So a member's content whose VolumeSnapshot goes with the VolumeGroupSnapshot does not prevent it; any other does.
func TestDeleteWithMembersGivenByHand(t *testing.T) {
	handle := here + "/" + lvm.GroupSnapshotName(api.PrefixGroupSnapshot+"uid")
	for name, test := range map[string]struct {
		change func(*kubeclient.Content, *kubeclient.Snapshot)
		goes   bool
	}{
		"its VolumeSnapshot is deleted with the group": {func(*kubeclient.Content, *kubeclient.Snapshot) {}, true},
		"it is to be retained":                         {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Spec.DeletionPolicy = "Retain" }, false},
		"its VolumeSnapshot stays":                     {func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.DeletionTimestamp = nil }, false},
		"its VolumeSnapshot is another group's":        {func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.OwnerReferences[0].UID = "other" }, false},
		"its VolumeSnapshot has no owner":              {func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.OwnerReferences = nil }, false},
		"its VolumeSnapshot has another content":       {func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.Status.Content = "other" }, false},
		"its VolumeSnapshot was created again":         {func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.UID = "other" }, false},
		"its VolumeSnapshot does not exist":            {func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.Name = "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := metav1.Now()
			given := kubetest.ContentOf("one", "snapshot-uid", "")
			given.Spec.DeletionPolicy = "Delete"
			given.Spec.Source.SnapshotHandle = there + "/" + lvm.SnapshotName(lvm.MemberName(lvm.GroupSnapshotName(api.PrefixGroupSnapshot+"uid"), 1))
			var s kubeclient.Snapshot
			s.Namespace, s.Name, s.UID, s.Status.Content, s.DeletionTimestamp = "ns", "nightly", "snapshot-uid", "one", &now
			s.OwnerReferences = []metav1.OwnerReference{{Kind: "VolumeGroupSnapshot", Name: "g", UID: "uid"}}
			test.change(given, &s)
			d := &disks{}
			c := ownContent()
			c.deleting, c.condemned, c.existing, c.handle = true, true, handle, handle
			byHand := groupContent("c", "uid", handle, "Delete", true)
			objects := neededBy{groups: []kubeclient.GroupContent{byHand}, snapshots: []kubeclient.Content{*given}, member: s}.objects()
			err := actorWith(t, d, objects).act(t.Context(), c)
			if test.goes {
				if err != nil || d.did[0] != "delete "+handle {
					t.Errorf("%v, did %q", err, d.did)
				}
				return
			}
			if lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "VolumeSnapshotContent one has it") || !strings.HasPrefix(d.did[0], "PATCH c/status") {
				t.Errorf("%v, did %q", err, d.did)
			}
		})
	}
}

// TestDeleteNeedsTheAPIServer: while the API server does not say which contents exist, nothing is deleted.
func TestDeleteNeedsTheAPIServer(t *testing.T) {
	client := kubetest.ClientOf(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "etcd is away", http.StatusForbidden) // client-go itself would retry other codes
	})))
	d := &disks{}
	c := ownContent(here + "/pvc-1")
	c.deleting, c.condemned, c.handle = true, true, groupHandle
	if err := New(Config{Client: client, Node: "node-1", Host: d}).act(t.Context(), c); lvm.KindOf(err) != lvm.KindBusy {
		t.Error(err)
	}
	d.expect(t)
}
