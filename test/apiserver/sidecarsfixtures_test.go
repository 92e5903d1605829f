//go:build e2e

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
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
	text := raw(t, admin.RESTClient().Post().AbsPath(snapshotsIn(t)), `{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
		"metadata": {"name": %q}, "spec": {"source": {"persistentVolumeClaimName": %q}}}`, name, pv.Spec.ClaimRef.Name)
	var snapshot metav1.PartialObjectMetadata
	must(t, json.Unmarshal(text, &snapshot))
	const classes = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses"
	raw(t, admin.RESTClient().Post().AbsPath(classes), `{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
		"metadata": {"name": %q}, "driver": %q, "deletionPolicy": "Delete"}`, node, driver)
	t.Cleanup(func() { must(t, admin.RESTClient().Delete().AbsPath(classes, node).Do(context.Background()).Error()) })
	content = "snapcontent-" + string(snapshot.UID)
	raw(t, admin.RESTClient().Post().AbsPath(contents), `{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
		"metadata": {"name": %q, "labels": {%q: %q}, "finalizers": ["snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"]},
		"spec": {"driver": %q, "deletionPolicy": "Delete", "volumeSnapshotClassName": %q, "source": {"volumeHandle": %q},
			"volumeSnapshotRef": {"namespace": %q, "name": %q, "uid": %q}}}`,
		content, managedBy, node, driver, node, pv.Spec.CSI.VolumeHandle, namespace(t), name, snapshot.UID)
	return content
}

// raw sends a request with a body, and answers what comes back.
func raw(t *testing.T, request *rest.Request, body string, args ...any) []byte {
	t.Helper()
	text, err := request.Body(fmt.Appendf(nil, body, args...)).Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func isReady(t *testing.T, content string) bool {
	t.Helper()
	text, err := admin.RESTClient().Get().AbsPath(contents, content).Do(t.Context()).Raw()
	must(t, err)
	var c struct {
		Status struct {
			ReadyToUse     bool
			SnapshotHandle string
		}
	}
	must(t, json.Unmarshal(text, &c))
	return c.Status.ReadyToUse && c.Status.SnapshotHandle != ""
}
