//go:build e2e

package apiserver

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/claimevents"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// TestWaitingClaimsSayWhy: the janitor, with the chart's rights, writes one event on a claim that waits and on a class with an unknown parameter,
// updates it when the cause changes, and makes it Normal when the claim is bound.
func TestWaitingClaimsSayWhy(t *testing.T) {
	const node = "a-node" // the first of the nodes of all tests
	labels := map[string]string{api.TopologyKey: node}
	_, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: labels}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, admin.CoreV1().Nodes().Delete(context.Background(), node, metav1.DeleteOptions{})) })
	// The API server's admission gives each new node the taint not-ready.
	_, err = admin.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(`{"spec": {"taints": null}}`), metav1.PatchOptions{})
	must(t, err)
	newParameterClass(t, "waiting", "volumeGroup")
	newParameterClass(t, "misspelt", "volumegroup")
	most := resource.MustParse("3Gi")
	published, err := admin.StorageV1().CSIStorageCapacities(system).Create(t.Context(), &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{GenerateName: "waiting-", Labels: map[string]string{"csi.storage.k8s.io/drivername": driver}},
		StorageClassName: "waiting", NodeTopology: &metav1.LabelSelector{MatchLabels: labels}, Capacity: &most, MaximumVolumeSize: &most,
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, admin.StorageV1().CSIStorageCapacities(system).Delete(context.Background(), published.Name, metav1.DeleteOptions{}))
	})
	large := newClaim(t, "large", func(c *corev1.PersistentVolumeClaim) {
		*c.Spec.StorageClassName = "waiting"
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("6Gi")
	})
	wrong := newClaim(t, "wrong", func(c *corev1.PersistentVolumeClaim) { *c.Spec.StorageClassName = "misspelt" })
	for _, claim := range []*corev1.PersistentVolumeClaim{large, wrong} {
		waitingPod(t, claim, "")
	}
	startReporter(t)

	eventSays(t, large, corev1.EventTypeWarning, "no node can have the volume; a-node: it has capacity for a volume of at most 3 GiB with this class, and the claim requests 6 GiB")
	eventSays(t, wrong, corev1.EventTypeWarning, `StorageClass misspelt: the parameter "volumegroup" is unknown (did you mean volumeGroup?)`)
	if got := eventOn(t, "default", "misspelt", api.ReasonWaitingForCapacity); got == "" {
		t.Error("no event on the class")
	}

	patch := []byte(`{"capacity": "2Gi", "maximumVolumeSize": "2Gi"}`)
	_, err = admin.StorageV1().CSIStorageCapacities(system).Patch(t.Context(), published.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	eventSays(t, large, corev1.EventTypeWarning, "a-node: it has capacity for a volume of at most 2 GiB with this class, and the claim requests 6 GiB")

	bind := []byte(`{"spec": {"volumeName": "bound-by-hand"}}`)
	_, err = admin.CoreV1().PersistentVolumeClaims(large.Namespace).Patch(t.Context(), large.Name, types.MergePatchType, bind, metav1.PatchOptions{})
	must(t, err)
	eventSays(t, large, corev1.EventTypeNormal, "resolved: ")
	if n := len(waitingEvents(t, large)); n != 1 {
		t.Errorf("the claim has %d events", n)
	}
}

func newParameterClass(t *testing.T, name, parameter string) {
	t.Helper()
	late := storagev1.VolumeBindingWaitForFirstConsumer
	_, err := admin.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: &late, Parameters: map[string]string{parameter: "vg"},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, admin.StorageV1().StorageClasses().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
}

func startReporter(t *testing.T) {
	t.Helper()
	startJanitorBeside(t, "reporter", -1, func(client *kubeclient.Client, log *slog.Logger) func(context.Context) {
		events := &kubeclient.EventRecorder{Client: client, Counts: map[string]kubeclient.EventCount{}}
		return (&claimevents.Reporter{Client: client, Namespace: system, Events: events, Log: log}).Run
	})
}

func waitingEvents(t *testing.T, claim *corev1.PersistentVolumeClaim) []corev1.Event {
	t.Helper()
	selector := "involvedObject.uid=" + string(claim.UID) + ",reason=" + api.ReasonWaitingForCapacity
	list, err := admin.CoreV1().Events(claim.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: selector})
	must(t, err)
	return list.Items
}

// eventSays waits for the claim's event. The janitor writes it within 30 s of the claim, and of a change.
func eventSays(t *testing.T, claim *corev1.PersistentVolumeClaim, kind, words string) {
	t.Helper()
	within(t, time.Minute, "event "+kind+" on claim "+claim.Name+": "+words, func() bool {
		return slices.ContainsFunc(waitingEvents(t, claim), func(e corev1.Event) bool { return e.Type == kind && strings.Contains(e.Message, words) })
	})
}
