package kube

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// registeredNode is a node on which the kubelet has registered the driver.
func registeredNode() (*corev1.Node, *storagev1.CSINode) {
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{api.TopologyKey: "node-1"}}}
	csi := &storagev1.CSINode{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "CSINode"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	csi.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "other.io", NodeID: "node-1"}, {Name: api.DriverName, NodeID: "node-1", TopologyKeys: []string{api.TopologyKey}}}
	return node, csi
}

// TestLostRegistration: the driver registers again, and reports it if that does not help, and when it is repaired.
func TestLostRegistration(t *testing.T) {
	node, csi := registeredNode()
	answers := map[string]any{"GET /api/v1/nodes/node-1": node, "GET /apis/storage.k8s.io/v1/csinodes/node-1": csi,
		"POST /api/v1/namespaces/default/events": &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}}
	client, _ := kubetest.RecordedClient(t, answers)
	times := 0
	agent := NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler), Register: func() error { times++; return nil }})
	reported := kubeclient.Event{About: kubeclient.AboutNode("node-1"), Reason: api.ReasonDriverNotRegistered}
	events := func() int {
		return int(agent.events.Counts["default/"+agent.events.Object(reported, time.Now()).Name].Times)
	}
	var was registration
	check := func(what string, registered, written int) {
		t.Helper()
		now, err := agent.checkRegistration(t.Context(), was)
		if was = now; err != nil || times != registered || events() != written {
			t.Errorf("%s: registered %d times, %d events, %v", what, times, events(), err)
		}
	}
	check("registered", 0, 0)
	delete(node.Labels, api.TopologyKey)
	check("the label is removed", 1, 0)
	check("still removed", 1, 1)
	node.Labels[api.TopologyKey] = "node-1"
	check("set by an admin", 1, 2)
	delete(answers, "GET /apis/storage.k8s.io/v1/csinodes/node-1")
	check("the CSINode is deleted", 2, 2)
	answers["GET /apis/storage.k8s.io/v1/csinodes/node-1"] = csi
	check("the kubelet created it again", 2, 2)
	delete(answers, "GET /api/v1/nodes/node-1")
	check("the Node is deleted", 2, 2)
	agent.register = func() error { return errors.New("no socket") }
	answers["GET /api/v1/nodes/node-1"] = node
	delete(node.Labels, api.TopologyKey)
	if now, err := agent.checkRegistration(t.Context(), registration{}); err == nil || now.problem == "" {
		t.Errorf("a registration that fails: %+v, %v", now, err)
	}
}
