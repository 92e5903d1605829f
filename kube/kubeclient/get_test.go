package kubeclient_test

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestGetOfImpossibleName: tenants write names into claims and pods. One that no object can have is missing, without a request.
func TestGetOfImpossibleName(t *testing.T) {
	client, sent := kubetest.RecordedClient(t, nil)
	for _, name := range []string{"", ".", "..", "a/b", "../secrets/key", "A", "a_b", "a%2fb", "\u00e9", strings.Repeat("a", 254), strings.Repeat("\u00e9", 180_000)} {
		if claim, err := client.Claim(t.Context(), "ns", name); claim != nil || err != nil {
			t.Errorf("the claim %.40q: %v, %v", name, claim, err)
		}
		if claim, err := client.Claim(t.Context(), name+"!", "data"); claim != nil || err != nil {
			t.Errorf("the namespace %.40q: %v, %v", name+"!", claim, err)
		}
	}
	if len(sent()) > 0 {
		t.Errorf("%d requests, the first of %d bytes", len(sent()), len(sent()[0]))
	}
	if _, err := client.Claim(t.Context(), "ns", "data.1-2"); err != nil || len(sent()) != 1 {
		t.Errorf("a claim that may exist: %v, %q", err, sent())
	}
}
