package kubeclient

import (
	"errors"
	"strings"
	"testing"
)

// TestNoServerIsConfigured: the message is for each process of the project, and names no flag that only one has.
func TestNoServerIsConfigured(t *testing.T) {
	for _, variable := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBECONFIG"} {
		t.Setenv(variable, "")
	}
	if _, err := NewClient(); !errors.Is(err, ErrNoServer) || strings.Contains(err.Error(), "--") {
		t.Error(err)
	}
}
