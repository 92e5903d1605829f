//go:build e2e

package apiserver

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/pending"
)

// TestEmptyClaimFollowsCopy: a pod has an empty claim, and one that is restored or cloned from a source on another node than the scheduler selects for both,
// of a class that copies to no other node. The empty claim gets no volume there: the scheduler chooses again, and both get the node of the source.
func TestEmptyClaimFollowsCopy(t *testing.T) {
	startControllers(t, t.TempDir())
	t.Run("restore", func(t *testing.T) { testEmptyClaimFollowsCopy(t, snapshotGroup, "VolumeSnapshot", "snap") })
	t.Run("clone", func(t *testing.T) { testEmptyClaimFollowsCopy(t, "", "PersistentVolumeClaim", "data") })
}

func testEmptyClaimFollowsCopy(t *testing.T, group, kind, name string) {
	source, other := newCopier(t, "a").node, newNodeNamed(t, namespace(t)+"-b")
	for _, n := range []*node{source, other} {
		node, err := admin.CoreV1().Nodes().Patch(t.Context(), n.name, types.MergePatchType, []byte(`{"metadata": {"labels": {"`+topology+`": "`+n.name+`"}}}`), metav1.PatchOptions{})
		must(t, err)
		letSchedule(t, node)
		t.Cleanup(func() { must(t, admin.CoreV1().Nodes().Delete(context.Background(), n.name, metav1.DeleteOptions{})) })
	}
	origin := source.bound(t, "data", corev1.PersistentVolumeFilesystem)
	patchVolume(t, origin.Spec.VolumeName, "status", `{"status": {"phase": "Bound"}}`)
	content, snapshot := source.snapshotOf(t, origin, "snap")
	markReady(t, content, snapshot)
	patchRaw(t, []string{snapshotsIn(t), "snap", "status"}, `{"status": {"readyToUse": true, "boundVolumeSnapshotContentName": %q}}`, content)
	start := func(n *node) {
		n.cluster = n.start(t)
		logs := n.startSidecars(t)
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(logs())
			}
		})
	}
	start(other)
	// Until the driver runs on the node of the source, that publishes no capacity, and does not select itself.
	claims := []*corev1.PersistentVolumeClaim{newClaim(t, "empty", plain), copyOf(t, "copy", group, kind, name, "")}
	for i := range claims { // as Kubernetes' volume controller does
		claims[i] = patchClaim(t, claims[i], "", `{"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "`+driver+`"}}}`)
	}
	podUsing(t, "web", "empty", "copy")
	if said := eventOn(t, namespace(t), "empty", "ProvisioningFailed"); !strings.Contains(said, "the source of claim copy is on node "+source.name) {
		t.Errorf("the event says %q", said)
	}
	start(source)
	for _, claim := range claims {
		pv := source.untilProvisioned(t, claim)
		t.Cleanup(func() { dropVolume(t, pv.Name) })
		if pending.NodeOf(pv) != source.name {
			t.Errorf("the volume of claim %s is on %s", claim.Name, pending.NodeOf(pv))
		}
	}
}
