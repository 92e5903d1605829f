package kube

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// sourced are the objects of a VolumeSnapshot ns/nightly and of a bound claim ns/data on node-1; nil: it does not exist.
type sourced struct {
	snapshot *kubeclient.Snapshot
	content  *kubeclient.Content
	claim    *corev1.PersistentVolumeClaim
	volume   *corev1.PersistentVolume
}

func newSourced() *sourced {
	s := &sourced{&kubeclient.Snapshot{}, kubetest.ContentOf("content", "uid", ""), kubetest.Claim("data", "late", "pvc-data"), kubetest.VolumeOn("node-1", "data")}
	s.snapshot.APIVersion, s.snapshot.Kind = kubeclient.SnapshotVersion.String(), kubeclient.KindSnapshot
	s.content.APIVersion, s.content.Kind, s.content.Status.ReadyToUse = kubeclient.SnapshotVersion.String(), kubeclient.KindContent, false
	s.snapshot.Namespace, s.snapshot.Name, s.snapshot.UID, s.snapshot.Status.Content = "ns", "nightly", "uid", "content"
	return s
}

// agent is that of a node.
func (s *sourced) agent(t *testing.T, node string) (a *Agent, sent func() []string) {
	t.Helper()
	answers := map[string]any{}
	if s.snapshot != nil {
		answers[restoreSnapshot] = s.snapshot
	}
	if s.content != nil {
		answers["GET /apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/content"] = s.content
	}
	if s.claim != nil {
		answers["GET /api/v1/namespaces/ns/persistentvolumeclaims/data"] = s.claim
	}
	if s.volume != nil {
		answers["GET /api/v1/persistentvolumes/pvc-data"] = s.volume
	}
	client, sent := kubetest.RecordedClient(t, answers)
	return NewAgent(Config{Client: client, Node: node}), sent
}

// TestSourceNode: the node of a source is known as soon as objects that name each other say it. Without them it is
// undecided, or, if the source is another's, nothing.
func TestSourceNode(t *testing.T) {
	ofSnapshot, ofClaim := api.PodClaim{FromSnapshot: "nightly"}, api.PodClaim{FromClaim: "data"}
	for name, test := range map[string]struct {
		of     api.PodClaim
		change func(s *sourced)
		node   string
		says   string // why it is not known yet
	}{
		"a snapshot, before it is ready":  {ofSnapshot, func(*sourced) {}, "node-1", ""},
		"no snapshot":                     {ofSnapshot, func(s *sourced) { s.snapshot = nil }, "", "VolumeSnapshot nightly: it does not exist"},
		"no content yet":                  {ofSnapshot, func(s *sourced) { s.snapshot.Status.Content = "" }, "", "no VolumeSnapshotContent yet"},
		"a content that is not there":     {ofSnapshot, func(s *sourced) { s.content = nil }, "", `"content" does not exist`},
		"a content that is not bound yet": {ofSnapshot, func(s *sourced) { s.content.Spec.VolumeSnapshotRef.UID = "" }, "", "not bound"},
		"a content of no node yet":        {ofSnapshot, func(s *sourced) { s.content.Labels = nil }, "", "no node yet"},
		"another driver's":                {ofSnapshot, func(s *sourced) { s.content.Spec.Driver = "ebs.example.com" }, "", ""},
		"a content of another namespace":  {ofSnapshot, func(s *sourced) { s.content.Spec.VolumeSnapshotRef.Namespace = "other" }, "", ""},
		"a content of an earlier one":     {ofSnapshot, func(s *sourced) { s.content.Spec.VolumeSnapshotRef.UID = "earlier" }, "", ""},
		"a foreign handle":                {ofSnapshot, func(s *sourced) { s.content.Status.SnapshotHandle = "snap-1" }, "", ""},

		"a claim":                   {ofClaim, func(*sourced) {}, "node-1", ""},
		"no claim":                  {ofClaim, func(s *sourced) { s.claim = nil }, "", "PersistentVolumeClaim data: it does not exist, or is not bound"},
		"a claim that waits":        {ofClaim, func(s *sourced) { s.claim.Spec.VolumeName = "" }, "", "is not bound"},
		"a volume of another claim": {ofClaim, func(s *sourced) { s.volume.Spec.ClaimRef.Namespace = "other" }, "", "is not bound"},
		"no volume":                 {ofClaim, func(s *sourced) { s.volume = nil }, "", "is not bound"},
		"another driver's volume":   {ofClaim, func(s *sourced) { s.volume.Spec.CSI.Driver = "ebs.example.com" }, "", ""},
		"a volume of any node":      {ofClaim, func(s *sourced) { s.volume.Spec.NodeAffinity = nil }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSourced()
			test.change(s)
			agent, sent := s.agent(t, "node-2")
			node, err := agent.SourceNode(t.Context(), "ns", test.of)
			if node != test.node || (err == nil) != (test.says == "") || err != nil && (lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("%q, %v", node, err)
			}
			if n := len(sent()); n > 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestSourceNodeHere: the watch on this node's contents saves a request. A retained content here, of an earlier snapshot with the name, does not count.
func TestSourceNodeHere(t *testing.T) {
	s := newSourced()
	agent, sent := s.agent(t, "node-1")
	s.content.Status.ReadyToUse, s.content.Status.SnapshotHandle = true, kubetest.SnapshotHandle("uid")
	must(t, agent.contents.Add(s.content))
	node, err := agent.SourceNode(t.Context(), "ns", api.PodClaim{FromSnapshot: "nightly"})
	if want := []string{restoreSnapshot}; node != "node-1" || err != nil || !slices.Equal(sent(), want) {
		t.Errorf("%q, %v, %q", node, err, sent())
	}

	s = newSourced()
	agent, _ = s.agent(t, "node-2")
	retained := kubetest.ContentOf("retained", "earlier", kubetest.SnapshotHandle("earlier"))
	retained.Labels[api.LabelManagedBy] = "node-2"
	must(t, agent.contents.Add(retained))
	if node, err := agent.SourceNode(t.Context(), "ns", api.PodClaim{FromSnapshot: "nightly"}); node != "node-1" || err != nil {
		t.Errorf("%q, %v", node, err)
	}
}

// TestSourceNodeWithoutAPIServer: an answer that does not come is no answer.
func TestSourceNodeWithoutAPIServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	agent := NewAgent(Config{Client: kubetest.ClientOf(t, server), Node: "node-2"})
	for _, of := range []api.PodClaim{{FromSnapshot: "nightly"}, {FromClaim: "data"}} {
		if node, err := agent.SourceNode(t.Context(), "ns", of); node != "" || lvm.KindOf(err) != lvm.KindBusy {
			t.Errorf("%q, %v", node, err)
		}
	}
}
