//go:build e2e

package apiserver

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectedClaim makes a claim that the scheduler has given to the node.
func (n *node) selectedClaim(t *testing.T, name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	return newClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations[selected] = n.name
		c.Annotations["volume.kubernetes.io/storage-provisioner"] = driver
		change(c)
	})
}

// untilProvisioned waits until csi-provisioner has made the claim's volume.
func (n *node) untilProvisioned(t *testing.T, claim *corev1.PersistentVolumeClaim) (pv *corev1.PersistentVolume) {
	t.Helper()
	soon(t, claim.Name+" has a volume", func() (made bool) {
		var err error
		pv, err = admin.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-"+string(claim.UID), metav1.GetOptions{})
		return err == nil
	})
	return pv
}

// untilDeleted releases a volume, and waits until csi-provisioner has let go of it. No controller removes Kubernetes' own finalizer here.
func (n *node) untilDeleted(t *testing.T, name string) {
	t.Helper()
	patchVolume(t, name, "status", `{"status": {"phase": "Released"}}`)
	soon(t, name+" is let go", func() bool {
		pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && pv.DeletionTimestamp != nil && slices.Equal(pv.Finalizers, []string{"kubernetes.io/pv-protection"})
	})
	patchVolume(t, name, "", `{"metadata": {"finalizers": null}}`)
}

// contentOf makes a snapshot of the volume's claim, and the content that the snapshot controller makes for it.
func contentOf(t *testing.T, node string, pv *corev1.PersistentVolume, name string) (content string) {
	t.Helper()
	snapshot := post(t, snapshotsIn(t), "VolumeSnapshot", name, "{}", `"spec": {"source": {"persistentVolumeClaimName": %q}}`, pv.Spec.ClaimRef.Name)
	makeSnapshotClass(t, node, "{}")
	content = "snapcontent-" + string(snapshot.UID)
	makeContent(t, name, string(snapshot.UID), node, node, content, pv.Spec.CSI.VolumeHandle)
	return content
}

func isReady(t *testing.T, content string) bool {
	t.Helper()
	var c struct {
		Status struct {
			ReadyToUse     bool
			SnapshotHandle string
		}
	}
	readRaw(t, &c, contents, content)
	return c.Status.ReadyToUse && c.Status.SnapshotHandle != ""
}
