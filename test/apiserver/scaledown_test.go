//go:build e2e

package apiserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/scaledown"
)

// TestScaleDownOfNodeWithVolumes: the janitor, with the chart's rights, writes an event on a node with a volume that cluster-autoscaler
// considers for removal, updates it when the removal begins, and makes it Normal when the taints are gone. A node whose only volume may
// go with it, and one without taint, have none.
func TestScaleDownOfNodeWithVolumes(t *testing.T) {
	going, replicated, stays := newNode(t, "going"), newNode(t, "replicated"), newNode(t, "stays")
	claim := going.inUse(t, "data", "thin", corev1.PersistentVolumeReclaimDelete)
	replicated.inUse(t, "data-1", optedIn, corev1.PersistentVolumeReclaimDelete)
	stays.inUse(t, "data-2", "thin", corev1.PersistentVolumeReclaimDelete)
	startJanitorBeside(t, "scaledown", -1, func(client *kubeclient.Client, log *slog.Logger) func(context.Context) {
		events := &kubeclient.EventRecorder{Client: client, Counts: map[string]kubeclient.EventCount{}}
		return (&scaledown.Reporter{Client: client, Events: events, Log: log}).Run
	})

	const candidate, deleted = "DeletionCandidateOfClusterAutoscaler", "ToBeDeletedByClusterAutoscaler"
	setTaints(t, replicated.name, candidate)
	setTaints(t, going.name, candidate)
	removalEvent(t, going.name, corev1.EventTypeWarning, "if it stays unneeded (taint "+candidate+"), and with it the data of 1 volume (1 GiB) ")
	setTaints(t, going.name, candidate, deleted)
	removalEvent(t, going.name, corev1.EventTypeWarning, "cluster-autoscaler removes this node (taint "+deleted+"), and with it the data of 1 volume (1 GiB) ")
	setTaints(t, going.name)
	removalEvent(t, going.name, corev1.EventTypeNormal, "resolved: ")
	if events := removalEvents(t, going.name); len(events) != 1 || strings.Contains(events[0].Message, claim.Spec.VolumeName) {
		t.Errorf("want one event that does not name the volume; there are %+v", events)
	}
	for _, node := range []string{replicated.name, stays.name} {
		if events := removalEvents(t, node); len(events) > 0 {
			t.Errorf("node %s has the events %+v", node, events)
		}
	}
}

func setTaints(t *testing.T, node string, keys ...string) {
	t.Helper()
	taints := []corev1.Taint{}
	for _, key := range keys {
		taints = append(taints, corev1.Taint{Key: key, Value: "1", Effect: corev1.TaintEffectPreferNoSchedule})
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	must(t, err)
	_, err = admin.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
}

func removalEvents(t *testing.T, node string) []corev1.Event {
	t.Helper()
	selector := "involvedObject.kind=Node,involvedObject.name=" + node + ",reason=" + api.ReasonNodeRemovalLosesVolumes
	list, err := admin.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{FieldSelector: selector})
	must(t, err)
	return list.Items
}

// removalEvent waits for the node's event. The janitor writes it within 5 s of a change.
func removalEvent(t *testing.T, node, kind, words string) {
	t.Helper()
	within(t, time.Minute, "event "+kind+" on node "+node+": "+words, func() bool {
		return slices.ContainsFunc(removalEvents(t, node), func(e corev1.Event) bool { return e.Type == kind && strings.Contains(e.Message, words) })
	})
}
