package kube

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// selecting returns a waiting claim with a selector, as Velero restores it; node "": none is selected.
func selecting(name, node string) *corev1.PersistentVolumeClaim {
	c := given(name, "late", node)
	c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"velero.io/dynamic-pv-restore": "ns." + name + ".x"}}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	return c
}

// TestPlaceTogether: of a pod with two claims with selectors both return to the scheduler if this node, once it is selected, lacks capacity for both.
func TestPlaceTogether(t *testing.T) {
	const claims = "/api/v1/namespaces/ns/persistentvolumeclaims/"
	bound := selecting("b", "node-1")
	bound.Spec.VolumeName = "pvc-b"
	elsewhere := selecting("b", "node-2")
	full := lvm.Errorf(lvm.KindInsufficientCapacity, "full")
	for name, test := range map[string]struct {
		first    string // the selected node that the watch brings first
		peer     *corev1.PersistentVolumeClaim
		fit      error
		checks   int
		returned string
	}{
		"no capacity for both":      {"", selecting("b", "node-1"), full, 1, "a b"},
		"from another node":         {"node-2", selecting("b", "node-1"), full, 1, "a b"},
		"the peer is elsewhere":     {"", elsewhere, full, 1, "a"},
		"capacity for both":         {"", selecting("b", "node-1"), nil, 1, ""},
		"selected before the start": {"node-1", selecting("b", "node-1"), full, 0, ""},
		"a peer has its volume":     {"", bound, full, 0, ""},
		"no peer":                   {"", nil, full, 0, ""},
		"undecided":                 {"", selecting("b", "node-1"), lvm.Errorf(lvm.KindBusy, "busy"), 1, ""},
	} {
		pod := podWith("web", time.Minute, "a", "b")
		pod.Namespace, pod.UID = "ns", "web-uid"
		answers := map[string]any{
			"GET /api/v1/namespaces/ns/pods":                  &corev1.PodList{Items: []corev1.Pod{pod}},
			"GET /apis/storage.k8s.io/v1/storageclasses/late": kubetest.Class("late", api.DriverName, late),
			"GET " + claims + "a":                             selecting("a", "node-1"),
			"PATCH " + claims + "a":                           selecting("a", ""),
			"PATCH " + claims + "b":                           selecting("b", ""),
			"POST /api/v1/namespaces/ns/events":               &corev1.Event{},
			"GET /api/v1/persistentvolumes/pvc-b":             kubetest.VolumeOn("node-1", "b"),
		}
		if test.peer != nil {
			answers["GET "+claims+"b"] = test.peer
		}
		client, sent := kubetest.RecordedClient(t, answers)
		agent := NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler)})
		checks := 0
		agent.PlaceTogether(func(_ context.Context, namespace string, one api.PodClaim, peers api.PodClaims) error {
			checks++
			if all := peers.Claims; namespace != "ns" || peers.PodUID != "web-uid" || len(all) != 1 || one.Name != "a" || all[0].Name != "b" || all[0].AccessModes == nil {
				t.Errorf("%s: checked %s, %+v, %+v", name, namespace, one, peers)
			}
			return test.fit
		})
		must(t, agent.classes.Add(kubetest.Class("late", api.DriverName, late)))
		for _, node := range []string{test.first, "node-1"} {
			must(t, agent.claims.Add(selecting("a", node)))
		}
		for range 2 { // the second run finds what the first has recorded
			if job, ok := agent.jobFor(t.Context(), kubeclient.ObjectKey{Kind: kubeclient.KindClaim, Key: "ns/a"}); ok {
				_, err := job.do(t.Context())
				if failed := err != nil; failed != (lvm.KindOf(test.fit) == lvm.KindBusy) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if test.fit != nil {
				break
			}
		}
		var returned []string
		for _, request := range sent() {
			if claim, ok := strings.CutPrefix(request, "PATCH "+claims); ok {
				returned = append(returned, claim)
			}
		}
		slices.Sort(returned)
		if got := strings.Join(returned, " "); got != test.returned || checks != test.checks {
			t.Errorf("%s: returned %q after %d checks, want %q after %d; the requests: %q", name, got, checks, test.returned, test.checks, sent())
		}
	}
}

// TestSelectedWithin: a claim counts as selected from when its selected node changed to this one, whatever changes later, and not if it came with it.
func TestSelectedWithin(t *testing.T) {
	store := newClaimStore("node-1", func(string) {})
	add := func(name, node, uid string) {
		c := selecting(name, node)
		c.UID += "-" + c.UID[:0]
		if uid != "" {
			c.UID = "other"
		}
		must(t, store.Add(c))
	}
	add("came", "node-1", "")
	add("came", "node-1", "")
	add("chosen", "", "")
	add("chosen", "node-1", "")
	add("changed", "", "")
	add("changed", "node-1", "")
	first := store.open["ns/changed"].selected
	add("changed", "node-1", "")
	add("another", "", "")
	add("another", "node-1", "other")
	add("left", "", "")
	add("left", "node-1", "")
	add("left", "node-2", "")
	for name, want := range map[string]bool{"came": false, "chosen": true, "changed": true, "another": false, "left": false, "missing": false} {
		if got := store.selectedWithin("ns/"+name, time.Minute); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if store.open["ns/changed"].selected != first {
		t.Error("a later change of a claim counts as a selection")
	}
	store.open["ns/chosen"].selected = time.Now().Add(-time.Hour)
	if store.selectedWithin("ns/chosen", time.Minute) {
		t.Error("a selection of an hour ago counts")
	}
}
