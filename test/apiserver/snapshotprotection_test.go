//go:build e2e

package apiserver

import (
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
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new(snapshotGroup), Kind: "VolumeSnapshot", Name: "needed"}
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
	post(t, snapshotsIn(t), "VolumeSnapshot", name, "{}", `"spec": {"source": {"persistentVolumeClaimName": "data"}}`)
	path := []string{snapshotsIn(t), name}
	patchRaw(t, path, `{"metadata": {"finalizers": [%q]}}`, restoreFinalizer)
	t.Cleanup(func() { removeRaw(t, path...) })
}

func isProtected(t *testing.T, name string) bool {
	t.Helper()
	var snapshot metav1.PartialObjectMetadata
	readRaw(t, &snapshot, snapshotsIn(t), name)
	return slices.Contains(snapshot.Finalizers, restoreFinalizer)
}
