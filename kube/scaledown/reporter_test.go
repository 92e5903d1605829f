package scaledown

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/clustertest"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

const (
	candidate = "DeletionCandidateOfClusterAutoscaler"
	deleted   = "ToBeDeletedByClusterAutoscaler"
)

// objectsState returns what a Reporter decides from with these objects.
func objectsState(objects ...any) state {
	s := state{nodes: map[string]*announcement{}, released: map[string]bool{}}
	var volumes []*cluster.Volume
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Node:
			s.nodes[o.Name] = announced(o.Spec.Taints)
		case *corev1.PersistentVolume:
			volumes = append(volumes, cluster.VolumeOf(o))
		case *storagev1.StorageClass:
			s.released[o.Name] = true
		}
	}
	s.volumes = slices.Values(volumes)
	return s
}

func nodeWith(name string, taints ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "1", Effect: corev1.TaintEffectNoSchedule})
	}
	return n
}

func volumeOn(node, name, size string) *corev1.PersistentVolume {
	pv := kubetest.VolumeOn(node, name)
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	return pv
}

func TestWarnings(t *testing.T) {
	one := volumeOn("node-1", "data", "6Gi")
	other := volumeOn("node-1", "other", "6Gi")
	other.Spec.CSI.Driver = "example.com"
	going := volumeOn("node-1", "going", "6Gi")
	going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	replicated := volumeOn("node-1", "replicated", "6Gi")
	replicated.Spec.StorageClassName = "replicated"
	releases := &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "replicated", Annotations: map[string]string{api.AnnotationOnNodeLoss: api.OnNodeLossRelease}},
		Provisioner: api.DriverName,
	}
	for name, c := range map[string]struct {
		objects []any
		begins  string // of the message on node-1; "": there is none
	}{
		"no taint":            {[]any{nodeWith("node-1"), one}, ""},
		"another taint":       {[]any{nodeWith("node-1", "node.kubernetes.io/unschedulable"), one}, ""},
		"no volume":           {[]any{nodeWith("node-1", candidate)}, ""},
		"another node":        {[]any{nodeWith("node-1", candidate), nodeWith("node-2"), volumeOn("node-2", "data", "6Gi")}, ""},
		"another driver":      {[]any{nodeWith("node-1", candidate), other}, ""},
		"a deleted volume":    {[]any{nodeWith("node-1", candidate), going}, ""},
		"a released class":    {[]any{nodeWith("node-1", candidate), replicated, releases}, ""},
		"the node is gone":    {[]any{one}, ""},
		"a candidate":         {[]any{nodeWith("node-1", candidate), one}, "cluster-autoscaler removes this node if it stays unneeded (taint DeletionCandidateOfClusterAutoscaler), and with it the data of 1 volume (6 GiB) "},
		"some volumes":        {[]any{nodeWith("node-1", candidate), one, replicated, releases, volumeOn("node-1", "wal", "2Gi")}, "cluster-autoscaler removes this node if it stays unneeded (taint DeletionCandidateOfClusterAutoscaler), and with it the data of 2 volumes (8 GiB) "},
		"the removal begins":  {[]any{nodeWith("node-1", candidate, deleted), one}, "cluster-autoscaler removes this node (taint ToBeDeletedByClusterAutoscaler), "},
		"Karpenter":           {[]any{nodeWith("node-1", "karpenter.sh/disrupted"), one}, "Karpenter removes this node (taint karpenter.sh/disrupted), "},
		"no such class there": {[]any{nodeWith("node-1", deleted), replicated}, "cluster-autoscaler removes this node (taint "},
	} {
		t.Run(name, func(t *testing.T) {
			got := warnings(objectsState(c.objects...))
			if message := got["node-1"]; !strings.HasPrefix(message, c.begins) || (c.begins == "") != (message == "") {
				t.Errorf("%q, want %q", message, c.begins)
			}
			if len(got) > 1 || len(got) == 1 && got["node-1"] == "" {
				t.Errorf("other nodes have messages, too: %q", got)
			}
		})
	}
}

// TestWarningsNameNoClaim: who reads events in the namespace default learns no claim and no namespace.
func TestWarningsNameNoClaim(t *testing.T) {
	pv := volumeOn("node-1", "secret-project", "6Gi")
	for _, a := range announcements {
		message := warnings(objectsState(nodeWith("node-1", a.taint), pv))["node-1"]
		if !strings.Contains(message, "1 volume (6 GiB)") || !strings.Contains(message, "drain-check node-1") {
			t.Errorf("%q does not say what is lost", message)
		}
		for _, secret := range []string{"secret-project", pv.Spec.ClaimRef.Namespace + "/", pv.Name, pv.Spec.CSI.VolumeHandle} {
			if strings.Contains(message, secret) {
				t.Errorf("%q contains %q", message, secret)
			}
		}
	}
}

// TestRoundWritesOneEventPerCause: a node has one event, a second one only when the message changes or the first is old, and one of type
// Normal when the removal is off. A failed request is repeated.
func TestRoundWritesOneEventPerCause(t *testing.T) {
	event := &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}
	broken, _ := kubetest.RecordedClient(t, nil)
	client, sent := kubetest.RecordedClient(t, map[string]any{"POST /api/v1/namespaces/default/events": event})
	r := &Reporter{Log: slog.New(slog.DiscardHandler), Events: &kubeclient.EventRecorder{Client: broken, Counts: map[string]kubeclient.EventCount{}}}
	now := time.Now()
	one, two := volumeOn("node-1", "data", "6Gi"), volumeOn("node-1", "wal", "2Gi")
	if err := r.round(t.Context(), objectsState(nodeWith("node-1", candidate), one), now); err == nil {
		t.Error("no error although no event can be written")
	}
	r.Events = &kubeclient.EventRecorder{Client: client, Counts: map[string]kubeclient.EventCount{}}
	for _, step := range []struct {
		what   string
		state  state
		after  time.Duration
		writes int
	}{
		{"the failed event", objectsState(nodeWith("node-1", candidate), one), 0, 1},
		{"nothing has changed", objectsState(nodeWith("node-1", candidate), one), time.Minute, 1},
		{"another volume", objectsState(nodeWith("node-1", candidate), one, two), time.Minute, 2},
		{"an old event", objectsState(nodeWith("node-1", candidate), one, two), 2 * repeated, 3},
		{"the taint is gone", objectsState(nodeWith("node-1"), one, two), 2 * repeated, 4},
		{"nothing is about to be removed", objectsState(nodeWith("node-1"), one, two), 2 * repeated, 4},
		{"the removal begins", objectsState(nodeWith("node-1", deleted), one), 2 * repeated, 5},
		{"the node is gone", objectsState(one), 2 * repeated, 5},
	} {
		if err := r.round(t.Context(), step.state, now.Add(step.after)); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := kubetest.Posts(sent()); got != step.writes {
			t.Errorf("%s: %d events were written, want %d: %q", step.what, got, step.writes, sent())
		}
	}
	if len(r.written) > 0 {
		t.Errorf("remembered: %v", r.written)
	}
}

// TestStateOfTheCluster: the facts in memory give the same warning.
func TestStateOfTheCluster(t *testing.T) {
	released := kubetest.Class("replicated", api.DriverName, "")
	released.Annotations = map[string]string{api.AnnotationOnNodeLoss: api.OnNodeLossRelease}
	replicated := volumeOn("node-1", "replicated", "6Gi")
	replicated.Spec.StorageClassName = "replicated"
	objects, _ := clustertest.Objects(t, nodeWith("node-1", candidate), nodeWith("node-2"), volumeOn("node-1", "data", "6Gi"), volumeOn("node-2", "more", "6Gi"), replicated, released)
	s, known := stateOf(objects)
	if got := warnings(s); !known || len(got) != 1 || !strings.Contains(got["node-1"], "1 volume (6 GiB)") {
		t.Errorf("%t, %q", known, got)
	}
}
