package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// dataVolume is the logical volume of kubetest.VolumeOn(NODE, "data").
var dataVolume = lvm.ID{VG: kubetest.TestVG, LV: "pvc-data"}

// releasedData is its PersistentVolume, whose claim was deleted.
func releasedData(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := kubetest.VolumeOn("node-1", "data")
	pv.Status.Phase, pv.Spec.PersistentVolumeReclaimPolicy = corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete
	change(pv)
	return pv
}

// TestMayDelete: the driver deletes a volume for its only PersistentVolume, if that is to be deleted with its data, and for none.
func TestMayDelete(t *testing.T) {
	asItIs := func(*corev1.PersistentVolume) {}
	mine := another(func(pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	})
	const both = "PersistentVolume pvc-data and PersistentVolume pvc-restored have the same volume handle"
	const needed = "PersistentVolume pvc-data has it, and is not released with the reclaim policy Delete"
	for name, test := range map[string]struct {
		pvs     []*corev1.PersistentVolume
		refused string
	}{
		"released":                     {[]*corev1.PersistentVolume{releasedData(asItIs)}, ""},
		"removed before":               {nil, ""},
		"others have other handles":    {[]*corev1.PersistentVolume{releasedData(asItIs), kubetest.VolumeOn("node-1", "other")}, ""},
		"another driver's":             {[]*corev1.PersistentVolume{releasedData(asItIs), another(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "ebs.example.com" })}, ""},
		"without CSI":                  {[]*corev1.PersistentVolume{releasedData(asItIs), another(func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil })}, ""},
		"beside a retained one":        {[]*corev1.PersistentVolume{mine, releasedData(asItIs)}, both},
		"beside another to be deleted": {[]*corev1.PersistentVolume{releasedData(func(pv *corev1.PersistentVolume) { pv.Name = "pvc-restored" }), releasedData(asItIs)}, both},
		"bound":                        {[]*corev1.PersistentVolume{releasedData(func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound })}, needed},
		"retained in the meantime": {[]*corev1.PersistentVolume{releasedData(func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		})}, needed},
		"only the other is left, retained": {[]*corev1.PersistentVolume{mine}, "PersistentVolume pvc-restored has it"},
	} {
		t.Run(name, func(t *testing.T) {
			agent, sent := withOwners(t, test.pvs...)
			err := agent.MayDelete(t.Context(), dataVolume)
			switch {
			case test.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.refused != "" && (lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("got %v, want a refusal that says %q", err, test.refused)
			}
			if requests := sent(); len(requests) != 1 {
				t.Errorf("requests %q", requests)
			}
		})
	}
}

func withOwners(t *testing.T, pvs ...*corev1.PersistentVolume) (agent *Agent, sent func() []string) {
	t.Helper()
	client, sent := kubetest.RecordedClient(t, map[string]any{"GET /api/v1/persistentvolumes": listOf(pvs...)})
	return NewAgent(Config{Client: client, Node: "node-1"}), sent
}

func listOf(pvs ...*corev1.PersistentVolume) *corev1.PersistentVolumeList {
	list := &corev1.PersistentVolumeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeList"}}
	for _, pv := range pvs {
		list.Items = append(list.Items, *pv)
	}
	return list
}

// TestMayDeleteNeedsAPIServer: without an answer the driver deletes nothing, and its caller retries.
func TestMayDeleteNeedsAPIServer(t *testing.T) {
	client, _ := kubetest.RecordedClient(t, nil)
	agent := NewAgent(Config{Client: client, Node: "node-1"})
	if err := agent.MayDelete(t.Context(), dataVolume); lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), dataVolume.String()) {
		t.Errorf("got %v", err)
	}
}

// slowList is an API server whose lists of PersistentVolumes wait until the test lets them go on.
type slowList struct {
	lists atomic.Int32
	went  chan struct{} // a token for each list
}

func (s *slowList) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.lists.Add(1)
	select {
	case <-s.went:
		kubetest.Reply(w, http.StatusOK, listOf(releasedData(func(*corev1.PersistentVolume) {})))
	case <-r.Context().Done():
	}
}

func (s *slowList) agent(t *testing.T) *Agent {
	t.Helper()
	server := httptest.NewServer(s)
	client := kubetest.ClientOf(t, server)
	return NewAgent(Config{Client: client, Node: "node-1"})
}

// untilAsked waits until so many questions wait for the next list.
func untilAsked(t *testing.T, agent *Agent, questions int) {
	t.Helper()
	until(t, func() bool {
		agent.owners.mu.Lock()
		defer agent.owners.mu.Unlock()
		return questions == 0 && agent.owners.next == nil || agent.owners.next != nil && len(agent.owners.next.owners) == questions
	})
}

func until(t *testing.T, holds func() bool) {
	t.Helper()
	wait.For(t, 30*time.Second, "that holds", holds)
}

// TestConcurrentDeletionsShareOneList: a question takes no list that began before it, and those that wait share the next one.
func TestConcurrentDeletionsShareOneList(t *testing.T) {
	server := &slowList{went: make(chan struct{})}
	agent := server.agent(t)
	var all sync.WaitGroup
	ask := func(lv string) {
		all.Go(func() {
			if err := agent.MayDelete(t.Context(), lvm.ID{VG: kubetest.TestVG, LV: lv}); err != nil {
				t.Error(err)
			}
		})
	}
	ask("pvc-data")
	until(t, func() bool { return server.lists.Load() == 1 })
	for i := range 9 {
		ask(fmt.Sprintf("pvc-%d", i))
	}
	untilAsked(t, agent, 9)
	close(server.went)
	all.Wait()
	if n := server.lists.Load(); n != 2 {
		t.Errorf("%d lists", n)
	}
}

// TestAnotherCallerGoneDoesNotFailDeletion: when the caller whose list runs has gone, the next one lists itself.
func TestAnotherCallerGoneDoesNotFailDeletion(t *testing.T) {
	server := &slowList{went: make(chan struct{})}
	agent := server.agent(t)
	var all sync.WaitGroup
	ask := func(ctx context.Context, lv string, wanted lvm.Kind) {
		all.Go(func() {
			if err := agent.MayDelete(ctx, lvm.ID{VG: kubetest.TestVG, LV: lv}); lvm.KindOf(err) != wanted {
				t.Errorf("%s: %v", lv, err)
			}
		})
	}
	first, cancel := context.WithCancel(t.Context())
	defer cancel()
	ask(first, "pvc-data", lvm.KindBusy)
	until(t, func() bool { return server.lists.Load() == 1 })
	for i := range 2 {
		ask(t.Context(), fmt.Sprintf("pvc-%d", i), lvm.KindOf(nil))
	}
	untilAsked(t, agent, 2)
	cancel()
	until(t, func() bool { return server.lists.Load() == 2 })
	close(server.went)
	all.Wait()
	if n := server.lists.Load(); n != 2 {
		t.Errorf("%d lists", n)
	}
}

// TestMayDeleteSnapshot: the driver deletes a snapshot if each content that has it, or that it was taken for, is being deleted with it.
func TestMayDeleteSnapshot(t *testing.T) {
	now := metav1.Now()
	of, err := lvm.ParseID(kubetest.SnapshotHandle("uid"))
	must(t, err)
	content := func(name, uid, handle, policy string, deleted *metav1.Time) *kubeclient.Content {
		c := kubetest.ContentOf(name, uid, handle)
		c.Spec.DeletionPolicy, c.DeletionTimestamp = policy, deleted
		return c
	}
	own, other := kubetest.SnapshotHandle("uid"), kubetest.SnapshotHandle("other")
	deleted := content("own", "uid", own, "Delete", &now)
	forged := content("forged", "other", own, "Delete", &now) // a node's token wrote the handle of another snapshot into its status
	byHand := content("by-hand", "third", "", "Delete", nil)
	byHand.Spec.Source.SnapshotHandle = own
	anothers := content("ebs", "uid", own, "Delete", nil)
	anothers.Spec.Driver = "ebs.example.com"
	for name, test := range map[string]struct {
		contents []*kubeclient.Content
		needed   string
	}{
		"its content is being deleted": {[]*kubeclient.Content{deleted}, ""},
		"removed before":               {nil, ""},
		"others have other snapshots":  {[]*kubeclient.Content{deleted, content("b", "other", other, "Delete", nil)}, ""},
		"another driver's":             {[]*kubeclient.Content{deleted, anothers}, ""},
		"in use":                       {[]*kubeclient.Content{content("own", "uid", own, "Delete", nil)}, "own"},
		"retained":                     {[]*kubeclient.Content{content("own", "uid", own, "Retain", &now)}, "own"},
		"forged beside its own":        {[]*kubeclient.Content{content("own", "uid", own, "Retain", nil), forged}, "own"},
		"forged beside its own, whose handle was overwritten": {[]*kubeclient.Content{content("own", "uid", other, "Delete", nil), forged}, "own"},
		"beside one made by hand":                             {[]*kubeclient.Content{deleted, byHand}, "by-hand"},
	} {
		t.Run(name, func(t *testing.T) {
			list := &kubeclient.ContentList{}
			for _, c := range test.contents {
				list.Items = append(list.Items, *c)
			}
			client, sent := kubetest.RecordedClient(t, map[string]any{"GET /apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents": list})
			err := NewAgent(Config{Client: client, Node: "node-1"}).MayDelete(t.Context(), of)
			switch {
			case test.needed == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.needed != "" && (lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "VolumeSnapshotContent "+test.needed+" has it")):
				t.Errorf("got %v, want a refusal that names %s", err, test.needed)
			}
			if requests := sent(); len(requests) != 1 {
				t.Errorf("requests %q", requests)
			}
		})
	}
}

// TestMayDeleteOfGroups: the contents of group snapshots decide on a group snapshot.
func TestMayDeleteOfGroups(t *testing.T) {
	group := lvm.ID{VG: kubetest.TestVG, LV: lvm.GroupSnapshotName(api.PrefixGroupSnapshot + "uid")}
	content := kubeclient.GroupContent{}
	content.Name, content.Spec.Driver, content.Spec.GroupSnapshotRef.UID = "c", api.DriverName, "uid"
	for by, contents := range map[string][]kubeclient.GroupContent{"": nil, "VolumeGroupSnapshotContent c": {content}} {
		client, _ := kubetest.RecordedClient(t, map[string]any{
			"GET /apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents": kubeclient.GroupContentList{TypeMeta: metav1.TypeMeta{APIVersion: kubeclient.GroupSnapshotVersion.String(), Kind: kubeclient.KindGroupContent + "List"}, Items: contents},
		})
		err := NewAgent(Config{Client: client, Node: "node-1"}).MayDelete(t.Context(), group)
		if by == "" && err != nil || by != "" && (lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), by)) {
			t.Errorf("needed by %q: %v", by, err)
		}
	}
}
