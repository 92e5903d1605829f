package kube

import (
	"os"
	"strings"
	"testing"
)

// TestPolicyNamesAnnotations: the admission policy refuses every annotation that it does not list, so it must list those
// that a node writes.
func TestPolicyNamesAnnotations(t *testing.T) {
	text, err := os.ReadFile("../deploy/nodelvm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{annSelectedNode, annReminded, annNoNodeExpansion, annLostSince, annGroupLost, labelManagedBy, topologyKey} {
		if !strings.Contains(string(text), "'"+name+"'") {
			t.Errorf("the policy nodelvm-node-restriction in deploy/nodelvm.yaml does not admit %s", name)
		}
	}
}
