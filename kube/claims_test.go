package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestOnlyBoundClaimsCount: a tenant may write the name of any volume into a claim. That claim gets no event about the
// volume, and the tenant's pod is not placed on its node.
func TestOnlyBoundClaimsCount(t *testing.T) {
	store := newClaimStore("node-1", func(string) {})
	thief, owner := kubetest.Claim("thief", "late", "pvc-data"), kubetest.Claim("data", "late", "pvc-data")
	thief.Status.Phase = corev1.ClaimPending
	for _, c := range []*corev1.PersistentVolumeClaim{thief, owner} {
		if err := store.Replace([]any{stripClaim(thief), stripClaim(c)}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if key, _, ok := store.boundTo("pvc-data"); key != "ns/data" || !ok || len(store.own) != 1 {
		t.Errorf("the volume is bound to %q, of %v", key, store.own)
	}
	pv := kubetest.VolumeOn("node-1", "data")
	if kubeclient.MayBind(pv, thief) || !kubeclient.MayBind(pv, owner) {
		t.Error("a claim that another claim's volume does not name may be bound to it")
	}
	pv.Spec.ClaimRef.UID = ""
	if !kubeclient.MayBind(pv, owner) {
		t.Error("a volume reserved for the claim cannot be bound to it")
	}
}
