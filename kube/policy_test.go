package kube

import (
	"os"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// TestPolicyNamesAnnotations: the admission policy refuses every annotation that it does not list, so it must list those
// that a node writes.
func TestPolicyNamesAnnotations(t *testing.T) {
	text, err := os.ReadFile("../deploy/nodelvm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{kubeclient.AnnSelectedNode, annReminded, annNoNodeExpansion, kubeclient.AnnLostSince, kubeclient.AnnGroupLost, kubeclient.LabelManagedBy, kubeclient.TopologyKey} {
		if !strings.Contains(string(text), "'"+name+"'") {
			t.Errorf("the policy nodelvm-node-restriction in deploy/nodelvm.yaml does not admit %s", name)
		}
	}
}
