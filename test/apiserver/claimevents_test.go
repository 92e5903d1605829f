//go:build e2e

package apiserver

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/claimevents"
)

// TestWaitingClaimsSayWhy: nodelvm-controller, with the chart's rights, writes one event on a claim that waits and on a class with an unknown parameter,
// updates it when the cause changes, and makes it Normal when the claim is bound.
func TestWaitingClaimsSayWhy(t *testing.T) {
	const node, reason = "a-node", api.ReasonWaitingForCapacity // the first of the nodes of all tests
	makeNode(t, node, map[string]string{api.TopologyKey: node})
	newClass(t, "waiting", map[string]string{"volumeGroup": "vg"})
	newClass(t, "misspelt", map[string]string{"volumegroup": "vg"})
	published := publishCapacity(t, node, "waiting", "3Gi")
	large := newClaim(t, "large", func(c *corev1.PersistentVolumeClaim) {
		*c.Spec.StorageClassName = "waiting"
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("6Gi")
	})
	wrong := newClaim(t, "wrong", func(c *corev1.PersistentVolumeClaim) { *c.Spec.StorageClassName = "misspelt" })
	for _, claim := range []*corev1.PersistentVolumeClaim{large, wrong} {
		waitingPod(t, claim, "")
	}
	startController(t, "reporter", func(k *clients) part {
		return (&claimevents.Reporter{Client: k.Client, Events: k.events, Log: k.log}).Run
	})

	eventSays(t, large.Namespace, large.Name, reason, corev1.EventTypeWarning, "no node can have the volume; a-node: it has capacity for a volume of at most 3 GiB with this class, and the claim requests 6 GiB")
	eventSays(t, wrong.Namespace, wrong.Name, reason, corev1.EventTypeWarning, `StorageClass misspelt: the parameter "volumegroup" is unknown (did you mean volumeGroup?)`)
	eventOn(t, "default", "misspelt", reason)
	patch := []byte(`{"capacity": "2Gi", "maximumVolumeSize": "2Gi"}`)
	_, err := admin.StorageV1().CSIStorageCapacities(system).Patch(t.Context(), published, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	eventSays(t, large.Namespace, large.Name, reason, corev1.EventTypeWarning, "a-node: it has capacity for a volume of at most 2 GiB with this class, and the claim requests 6 GiB")
	patchClaim(t, large, "", fmt.Sprintf(bindByHand, "bound-by-hand"))
	eventSays(t, large.Namespace, large.Name, reason, corev1.EventTypeNormal, "resolved: ")
	if n := len(slices.DeleteFunc(eventsOn(t, large.Namespace, large.Name), func(e corev1.Event) bool { return e.Reason != reason })); n != 1 {
		t.Errorf("the claim has %d events", n)
	}
}
