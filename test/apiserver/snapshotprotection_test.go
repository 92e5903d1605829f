//go:build e2e

package apiserver

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const restoreFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"

// TestSnapshotProtection: csi-provisioner, behind the driver's proxy, removes its finalizer from the VolumeSnapshots that no claim
// waits for, and keeps it on the source of another driver's restore.
func TestSnapshotProtection(t *testing.T) {
	here := newNode(t, "a")
	protectedSnapshot(t, "needed")
	newClaim(t, "foreign", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations["volume.kubernetes.io/storage-provisioner"] = "ebs.csi.aws.com"
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "needed"}
	})
	protectedSnapshot(t, "before")
	dir := here.serveSidecars(t)
	for _, c := range manifestContainers(t) {
		if c.Name == "csi-provisioner" {
			c.Args = append(c.Args, "--snapshot-orphan-sweep-interval=1s")
			here.startSidecar(t, dir, c)
		}
	}
	for _, name := range []string{"before", "during"} { // between the two it checks all of them
		if name == "during" {
			protectedSnapshot(t, name)
		}
		soon(t, name+" is not protected", func() bool { return !isProtected(t, name) })
		if !isProtected(t, "needed") {
			t.Errorf("%s and the source of another driver's restore lost their protection", name)
		}
	}
}

func protectedSnapshot(t *testing.T, name string) {
	t.Helper()
	raw(t, admin.RESTClient().Post().AbsPath(snapshotsIn(t)), `{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
		"metadata": {"name": %q, "finalizers": [%q]}, "spec": {"source": {"persistentVolumeClaimName": "data"}}}`, name, restoreFinalizer)
	path := snapshotsIn(t)
	t.Cleanup(func() {
		must(t, admin.RESTClient().Patch("application/merge-patch+json").AbsPath(path, name).Body([]byte(`{"metadata": {"finalizers": null}}`)).Do(context.Background()).Error())
		must(t, admin.RESTClient().Delete().AbsPath(path, name).Do(context.Background()).Error())
	})
}

func isProtected(t *testing.T, name string) bool {
	t.Helper()
	text, err := admin.RESTClient().Get().AbsPath(snapshotsIn(t), name).Do(t.Context()).Raw()
	must(t, err)
	var snapshot metav1.PartialObjectMetadata
	must(t, json.Unmarshal(text, &snapshot))
	return slices.Contains(snapshot.Finalizers, restoreFinalizer)
}
