//go:build e2e

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rebind makes a claim to which an admin or a volume populator binds the volume of another claim. selectedNode is the one that its
// annotation names.
func rebind(t *testing.T, from *corev1.PersistentVolumeClaim, name, selectedNode string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := newClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations[selected], c.Spec.VolumeName = selectedNode, from.Spec.VolumeName
		c.Annotations["volume.kubernetes.io/storage-provisioner"] = driver
	})
	patchClaim(t, from, "", `{"metadata": {"finalizers": null}}`)
	if err := admin.CoreV1().PersistentVolumeClaims(from.Namespace).Delete(t.Context(), from.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ref := fmt.Sprintf(`{"spec": {"claimRef": {"namespace": %q, "name": %q, "uid": %q}}}`, claim.Namespace, claim.Name, claim.UID)
	if _, err := admin.CoreV1().PersistentVolumes().Patch(t.Context(), from.Spec.VolumeName, types.MergePatchType, []byte(ref), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	return patchClaim(t, claim, "status", `{"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}`)
}

// TestReboundVolumeExpands: another node than the volume's is selected for a claim that was bound to an existing volume. The volume's node
// expands it, within the admission policy; the selected node writes nothing.
func TestReboundVolumeExpands(t *testing.T) {
	here, other := newNode(t, "a"), newNode(t, "b")
	here.start(t, nil)
	other.start(t, nil)
	claim := rebind(t, here.bound(t, "prime", corev1.PersistentVolumeFilesystem), "data", other.name)
	request(t, claim, "2Gi")
	claim = until(t, claim, "the kubelet's turn", func(c *corev1.PersistentVolumeClaim) bool {
		return resizeState(c) == corev1.PersistentVolumeClaimNodeResizePending
	})
	if claim.Annotations[selected] != other.name {
		t.Errorf("the selected node is now %q", claim.Annotations[selected])
	}
	eventOn(t, claim.Namespace, claim.Name, "FileSystemResizeRequired")
	expectAllowed(t, here)
	expectNoWrites(t, other)
}

// TestMovedVolumeNamesItsAnnotation: the volume was created for the claim, and an admin has moved it to another node. The policy does not
// let that node expand it, and the event says what to remove.
func TestMovedVolumeNamesItsAnnotation(t *testing.T) {
	here, other := newNode(t, "a"), newNode(t, "b")
	claim := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	patchClaim(t, claim, "", `{"metadata": {"annotations": {"`+selected+`": "`+other.name+`"}}}`)
	here.start(t, nil)
	other.start(t, nil)
	request(t, claim, "2Gi")
	why := eventOn(t, claim.Namespace, claim.Name, "VolumeResizeFailed")
	if remedy := "kubectl -n " + claim.Namespace + " annotate pvc data " + selected + "-"; !strings.Contains(why, remedy) || !strings.Contains(why, other.name) {
		t.Errorf("the event says %q, want %q", why, remedy)
	}
	expectNoWrites(t, other)
	patchClaim(t, claim, "", `{"metadata": {"annotations": {"`+selected+`": null}}}`)
	until(t, claim, "the kubelet's turn", func(c *corev1.PersistentVolumeClaim) bool {
		return resizeState(c) == corev1.PersistentVolumeClaimNodeResizePending
	})
}
