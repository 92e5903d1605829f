//go:build e2e

package apiserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/scaledown"
)

// TestScaleDownOfNodeWithVolumes: nodelvm-controller, with the chart's rights, writes an event on a node with a volume that cluster-autoscaler
// removes, and makes it Normal when the taint is gone. A node whose only volume may go with it has none.
func TestScaleDownOfNodeWithVolumes(t *testing.T) {
	going, replicated := newNode(t, "going"), newNode(t, "replicated")
	claim := going.inUse(t, "data", "thin", corev1.PersistentVolumeReclaimDelete)
	replicated.inUse(t, "data-1", optedIn, corev1.PersistentVolumeReclaimDelete)
	startController(t, "scaledown", func(k *clients) part {
		return (&scaledown.Reporter{Events: k.events, Log: k.log}).Run
	})

	const deleted, reason = "ToBeDeletedByClusterAutoscaler", api.ReasonNodeRemovalLosesVolumes
	taintNode(t, replicated.name, deleted)
	taintNode(t, going.name, deleted)
	said := eventSays(t, "default", going.name, reason, corev1.EventTypeWarning, "(taint "+deleted+"), and with it the data of 1 volume (1 GiB) ")
	if strings.Contains(said, claim.Spec.VolumeName) {
		t.Errorf("the event names the volume: %s", said)
	}
	_, err := admin.CoreV1().Nodes().Patch(t.Context(), going.name, types.MergePatchType, []byte(`{"spec": {"taints": null}}`), metav1.PatchOptions{})
	must(t, err)
	eventSays(t, "default", going.name, reason, corev1.EventTypeNormal, "resolved: ")
	if events := eventsOn(t, "default", replicated.name); len(events) > 0 {
		t.Errorf("the node whose volume is replicated has the events %+v", events)
	}
}
