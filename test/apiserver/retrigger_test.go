//go:build e2e

package apiserver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const reminded = "nodelvm.io/provisioning-retried-at"

// TestProvisioningIsRetriggered: csi-provisioner processes a claim again when it changes.
func TestProvisioningIsRetriggered(t *testing.T) {
	here, other := newNode(t, "a"), newNode(t, "b")
	agent := here.start(t, nil)
	other.start(t, nil)
	given := func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = here.name }
	asked := newClaim(t, "asked", given)
	overlooked := newClaim(t, "overlooked", given)
	unplaced := newClaim(t, "unplaced", plain)
	soon(t, "the claim is known", func() bool { return agent.Waiting(asked.Namespace, asked.Name, string(asked.UID)) })
	answered := agent.Asked(asked.Namespace, asked.Name) // as by each CreateVolume
	defer answered()
	now := until(t, overlooked, "changed", func(c *corev1.PersistentVolumeClaim) bool { return c.Annotations[reminded] != "" })
	if waited := time.Since(overlooked.CreationTimestamp.Time); waited < 10*time.Second {
		t.Errorf("it was given %s", waited)
	}
	if now.Annotations[selected] != here.name {
		t.Errorf("it was given to %q", now.Annotations[selected])
	}
	for _, claim := range []*corev1.PersistentVolumeClaim{asked, unplaced} {
		if now, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{}); err != nil || now.ResourceVersion != claim.ResourceVersion {
			t.Errorf("claim %s was changed: %+v, %v", claim.Name, now, err)
		}
	}
	expectAllowed(t, here)
	expectNoWrites(t, other)
}
