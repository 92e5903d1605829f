//go:build e2e

package apiserver

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/lvm"
)

func resizeState(c *corev1.PersistentVolumeClaim) corev1.ClaimResourceStatus {
	return c.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
}

func allocated(c *corev1.PersistentVolumeClaim) string {
	q := c.Status.AllocatedResources[corev1.ResourceStorage]
	return q.String()
}

// expectSize holds the LV and the PersistentVolume to a size.
func expectSize(t *testing.T, n *node, claim *corev1.PersistentVolumeClaim, size lvm.Bytes) {
	t.Helper()
	pv, id := boundVolume(t, claim)
	volume, err := n.host.Lookup(t.Context(), id)
	if err != nil || volume.Size != size || pv.Spec.Capacity.Storage().Value() != int64(size) {
		t.Errorf("the LV has %s (%v), the PersistentVolume %s; want %s", volume.Size, err, pv.Spec.Capacity.Storage(), size)
	}
}

const kubeletDone = `{"status": {"capacity": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": null}, "conditions": []}}`

func TestVolumeExpands(t *testing.T) {
	here, other := newNode(t, "a"), newNode(t, "b")
	here.start(t)
	other.start(t)
	claim := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	request(t, claim, "2Gi")
	claim = until(t, claim, "the kubelet's turn", func(c *corev1.PersistentVolumeClaim) bool {
		return resizeState(c) == corev1.PersistentVolumeClaimNodeResizePending
	})
	expectSize(t, here, claim, 2*lvm.GiB)
	if allocated(claim) != "2Gi" || len(claim.Status.Conditions) != 1 || claim.Status.Conditions[0].Type != corev1.PersistentVolumeClaimFileSystemResizePending {
		t.Errorf("the claim's status is %+v", claim.Status)
	}
	eventOn(t, claim.Namespace, claim.Name, "FileSystemResizeRequired")
	request(t, claim, "100Gi") // while the kubelet is at work: it comes after that
	patchClaim(t, claim, "status", kubeletDone)
	claim = until(t, claim, "infeasible", func(c *corev1.PersistentVolumeClaim) bool {
		return resizeState(c) == corev1.PersistentVolumeClaimControllerResizeInfeasible
	})
	expectSize(t, here, claim, 2*lvm.GiB)
	if why := eventOn(t, claim.Namespace, claim.Name, "VolumeResizeFailed"); !strings.Contains(why, "vg") {
		t.Errorf("the event says %q", why)
	}
	request(t, claim, "3Gi")
	claim = until(t, claim, "the kubelet's turn, with less", func(c *corev1.PersistentVolumeClaim) bool {
		return resizeState(c) == corev1.PersistentVolumeClaimNodeResizePending && allocated(c) == "3Gi"
	})
	expectSize(t, here, claim, 3*lvm.GiB)
	expectAllowed(t, here)
	expectNoWrites(t, other)
	// 3 each for the two that succeed, 2 for the one that does not. A write that conflicts with another one is tried again.
	conflict := func(write string) bool { return strings.HasSuffix(write, " 409") }
	if writes := slices.DeleteFunc(here.written(), conflict); len(writes) > 8 {
		t.Errorf("%d writes: %s", len(writes), strings.Join(writes, "\n"))
	}
}

func TestBlockVolumeExpandsWithoutKubelet(t *testing.T) {
	here := newNode(t, "a")
	here.start(t)
	claim := here.bound(t, "disk", corev1.PersistentVolumeBlock)
	request(t, claim, "2Gi")
	claim = until(t, claim, "the new size", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Capacity.Storage().String() == "2Gi" })
	expectSize(t, here, claim, 2*lvm.GiB)
	if resizeState(claim) != "" || len(claim.Status.Conditions) != 0 {
		t.Errorf("the claim's status is %+v", claim.Status)
	}
	eventOn(t, claim.Namespace, claim.Name, "VolumeResizeSuccessful")
	expectAllowed(t, here)
}
