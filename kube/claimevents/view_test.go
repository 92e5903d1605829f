package claimevents

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestLargeClaimIsNotKept: the memory for a tenant's claim is limited.
func TestLargeClaimIsNotKept(t *testing.T) {
	claim := kubetest.Claim("data", "late", "")
	if _, kept := keepClaim(claim); !kept {
		t.Error("a claim that waits is not kept")
	}
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: strings.Repeat("x", api.MaxObject)}
	if _, kept := keepClaim(claim); kept {
		t.Errorf("a claim of %d bytes is kept", claim.Size())
	}
}
