package pending

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

// registeredNode is a node on which the kubelet has registered the driver.
func registeredNode() (*corev1.Node, *storagev1.CSINode) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{api.TopologyKey: "node-1"}}}
	csi := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	csi.Spec.Drivers = []storagev1.CSINodeDriver{{Name: "other.io", NodeID: "node-1"}, {Name: api.DriverName, NodeID: "node-1", TopologyKeys: []string{api.TopologyKey}}}
	return node, csi
}

// TestRegistrationProblem: what the scheduler needs of a node besides capacity.
func TestRegistrationProblem(t *testing.T) {
	for want, change := range map[string]func(node *corev1.Node, csi *storagev1.CSINode){
		"":                                func(*corev1.Node, *storagev1.CSINode) {},
		"lacks the label":                 func(node *corev1.Node, _ *storagev1.CSINode) { node.Labels = nil },
		`of node node-1 is "node-2"`:      func(node *corev1.Node, _ *storagev1.CSINode) { node.Labels[api.TopologyKey] = "node-2" },
		"CSINode node-1 lacks the driver": func(_ *corev1.Node, csi *storagev1.CSINode) { csi.Spec.Drivers = csi.Spec.Drivers[:1] },
	} {
		node, csi := registeredNode()
		change(node, csi)
		if got := RegistrationProblem(node, csi); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	node, csi := registeredNode()
	csi.Spec.Drivers[1].TopologyKeys = nil
	if RegistrationProblem(node, csi) == "" || RegistrationProblem(node, nil) == "" {
		t.Error("a CSINode without topology key, or none, counts as registered")
	}
}

// TestUnregisteredNode: a node without the registration cannot have the volume, whatever the scheduler says of other nodes.
func TestUnregisteredNode(t *testing.T) {
	for want, change := range map[string]func(n *Node){
		"node-1: node node-1 lacks the label topology.nodelvm.io/node\n":      func(n *Node) { n.Node.Labels = nil },
		"node-1: CSINode node-1 lacks the driver nodelvm.io\n":                func(n *Node) { n.CSINode = &storagev1.CSINode{} },
		"node-1: nodelvm does not run there\n":                                func(n *Node) { n.NoVolumes, n.Node.Labels = "nodelvm does not run there", nil },
		"fix: kubectl label node node-1 --overwrite topology.nodelvm.io/node": func(n *Node) { n.Node.Labels = nil },
	} {
		f, pod := twoNodes(), boundPod()
		unschedulable("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) did not have enough free storage")(&pod)
		f.Pods[0].Status = pod.Pod.Status
		nodeNamed(f, "node-2").Offers = nil
		n := nodeNamed(f, "node-1")
		_, n.CSINode = registeredNode()
		change(n)
		got := text(Explain(f)) + "\n"
		if !strings.Contains(got, want) || strings.Contains(got, "Insufficient cpu") {
			t.Errorf("no %q, or the CPU of another node, in\n%s", want, got)
		}
	}
	f := boundPod()
	unschedulable("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match PersistentVolume's node affinity")(&f)
	delete(f.Nodes[1].Labels, api.TopologyKey)
	if got := text(ExplainPod(f)); !strings.Contains(got, "is on node-3, but node node-3 lacks the label") || strings.Contains(got, "CPU") {
		t.Errorf("of a pod whose volume is there: %s", got)
	}
}
