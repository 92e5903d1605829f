package kube

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// allThere is a node that has every volume; it counts the calls of Extend.
type allThere struct {
	snapshots
	extended int
}

func (d *allThere) Lookup(_ context.Context, id lvm.ID) (lvm.Volume, error) {
	return lvm.Volume{ID: id}, nil
}

func (d *allThere) Extend(_ context.Context, id lvm.ID, required, _ lvm.Bytes) (lvm.Volume, error) {
	d.extended++
	return lvm.Volume{ID: id, Size: required}, nil
}

// withVolumes starts an agent of node-1 for two claims: ns/data, which has the first of these PersistentVolumes and
// requests 2 GiB, and ns/copy, a clone of it.
func withVolumes(t *testing.T, pvs ...*corev1.PersistentVolume) (*Agent, *allThere, func() []string) {
	t.Helper()
	data, copied := growingClaim(), kubetest.Claim("copy", "late", "")
	client, sent := kubetest.RecordedClient(t, map[string]any{
		"GET /api/v1/persistentvolumes": listOf(pvs...), "GET /api/v1/persistentvolumes/pvc-data": pvs[0], "PATCH /api/v1/persistentvolumes/pvc-data": pvs[0],
		"PATCH /api/v1/namespaces/ns/persistentvolumeclaims/data/status": data, "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/copy": copied,
		"POST /api/v1/namespaces/ns/events": &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}},
		"GET /api/v1/namespaces/ns/pods":    &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}},
	})
	disks := &allThere{}
	agent := NewAgent(Config{Client: client, Node: "node-1", Volumes: disks})
	must(t, agent.claims.Add(data))
	return agent, disks, sent
}

func growingClaim() *corev1.PersistentVolumeClaim {
	c := kubetest.Claim("data", "late", "pvc-data")
	c.Status.Phase = corev1.ClaimBound
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	return c
}

// another returns a second PersistentVolume with the handle of the first.
func another(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := kubetest.VolumeOn("node-1", "restored")
	pv.Spec.CSI.VolumeHandle = kubetest.VolumeOn("node-1", "data").Spec.CSI.VolumeHandle
	change(pv)
	return pv
}

// TestDuplicateVolumeHandle: the agent neither extends a volume with two PersistentVolumes nor selects its node for a
// clone. The event on the claim names both.
func TestDuplicateVolumeHandle(t *testing.T) {
	for name, test := range map[string]struct {
		other   *corev1.PersistentVolume
		refused bool
	}{
		"the same handle": {another(func(*corev1.PersistentVolume) {}), true},
		"for another node": {another(func(pv *corev1.PersistentVolume) {
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node-2"}
		}), true},
		"bound to nothing":          {another(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil }), true},
		"released":                  {another(func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeReleased }), true},
		"another handle":            {kubetest.VolumeOn("node-1", "other"), false},
		"another driver's":          {another(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "ebs.example.com" }), false},
		"the volume is not a CSI's": {another(func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil }), false},
	} {
		t.Run(name, func(t *testing.T) {
			agent, disks, sent := withVolumes(t, kubetest.VolumeOn("node-1", "data"), test.other)
			_, err := agent.resize(t.Context(), growingClaim())
			expectShared(t, err, test.refused)
			if (disks.extended == 0) != test.refused || slices.Contains(sent(), "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/data/status") == test.refused {
				t.Errorf("%d extensions; requests %q", disks.extended, sent())
			}
			if !slices.Contains(sent(), "POST /api/v1/namespaces/ns/events") {
				t.Error("the claim gets no event")
			}

			agent, _, sent = withVolumes(t, kubetest.VolumeOn("node-1", "data"), test.other)
			copied := kubetest.Claim("copy", "late", "")
			copied.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(""), Kind: kubeclient.KindClaim, Name: "data"}
			_, err = agent.pin(t.Context(), copied, sourceOf(copied))
			expectShared(t, err, test.refused)
			if slices.Contains(sent(), "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/copy") == test.refused || !slices.Contains(sent(), "POST /api/v1/namespaces/ns/events") {
				t.Errorf("requests for the clone: %q", sent())
			}
		})
	}
}

func expectShared(t *testing.T, err error, refused bool) {
	t.Helper()
	switch {
	case !refused && err != nil:
		t.Errorf("refused: %v", err)
	case refused && (err == nil || !strings.Contains(err.Error(), "pvc-data and PersistentVolume pvc-restored have the same volume handle") ||
		!strings.Contains(err.Error(), "Retain")):
		t.Errorf("the error is %v", err)
	}
}

// TestConcurrentExpansionsShareOneList: simultaneous expansions share one list of all PersistentVolumes, and a later one lists
// them again.
func TestConcurrentExpansionsShareOneList(t *testing.T) {
	agent, _, sent := withVolumes(t, kubetest.VolumeOn("node-1", "data"))
	looks := func() (n int) {
		for range 20 {
			if err := agent.checkHandle(t.Context(), kubetest.VolumeOn("node-1", "data")); err != nil {
				t.Error(err)
			}
		}
		for _, request := range sent() {
			if request == "GET /api/v1/persistentvolumes" {
				n++
			}
		}
		return n
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { looks() })
	}
	all.Wait()
	if n := looks(); n != 1 {
		t.Errorf("%d lists", n)
	}
	agent.handles.read = time.Now().Add(-handlesGoodFor)
	if n := looks(); n != 2 {
		t.Errorf("%d lists after a while", n)
	}
}

// TestNoExpansionWithoutAPIServer: while the API server does not return the PersistentVolumes, the agent does nothing and writes
// no event.
func TestNoExpansionWithoutAPIServer(t *testing.T) {
	client, sent := kubetest.RecordedClient(t, map[string]any{"GET /api/v1/persistentvolumes/pvc-data": kubetest.VolumeOn("node-1", "data")})
	disks := &allThere{}
	agent := NewAgent(Config{Client: client, Node: "node-1", Volumes: disks})
	if _, err := agent.resize(t.Context(), growingClaim()); err == nil || disks.extended > 0 || len(sent()) != 2 {
		t.Errorf("extended %d times, %v, %q", disks.extended, err, sent())
	}
}
