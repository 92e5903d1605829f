//go:build e2e

package apiserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestVolumeOfAnotherPersistentVolumeIsKept: an admin has created the PersistentVolume of a logical volume again, under another
// name. The thief of the node's token creates one under the first name, and csi-provisioner calls DeleteVolume for it. The driver
// refuses until the admin's is gone.
func TestVolumeOfAnotherPersistentVolumeIsKept(t *testing.T) {
	here := newNode(t, "a")
	here.cluster = here.start(t, nil)
	client, err := kubernetes.NewForConfig(here.restConfig())
	must(t, err)
	gone := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace(t), Name: "data", UID: uuid.NewUUID()},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}}
	volume, err := here.host.Create(t.Context(), lvm.Spec{Name: "pvc-" + string(gone.UID), Claim: gone.Namespace + "/" + gone.Name, Required: lvm.GiB,
		Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin}})
	if err != nil {
		t.Fatal(err)
	}
	forged := provisioned(here.name, gone)
	forged.Spec.CSI.VolumeHandle = volume.ID.String()
	mine := forged.DeepCopy()
	mine.Name, mine.Finalizers, mine.Spec.PersistentVolumeReclaimPolicy = here.name+"-mine", nil, corev1.PersistentVolumeReclaimRetain
	volumes := admin.CoreV1().PersistentVolumes()
	_, err = volumes.Create(t.Context(), mine, metav1.CreateOptions{})
	must(t, err)
	patchVolume(t, mine.Name, "status", `{"status": {"phase": "Bound"}}`)

	_, err = client.CoreV1().PersistentVolumes().Create(t.Context(), forged, metav1.CreateOptions{})
	must(t, err)
	patchVolume(t, forged.Name, "status", `{"status": {"phase": "Released"}}`)
	here.startSidecars(t)
	if why := eventOn(t, "default", forged.Name, "VolumeFailedDelete"); !strings.Contains(why, mine.Name) || !strings.Contains(why, "Retain") {
		t.Errorf("the event says %q", why)
	}
	if _, err := here.host.Lookup(t.Context(), volume.ID); err != nil {
		t.Errorf("the volume was not kept: %v", err)
	}

	must(t, volumes.Delete(t.Context(), mine.Name, metav1.DeleteOptions{}))
	patchVolume(t, mine.Name, "", `{"metadata": {"finalizers": null}}`)
	here.untilDeleted(t, forged.Name)
	if _, err := here.host.Lookup(t.Context(), volume.ID); lvm.KindOf(err) != lvm.KindNotFound {
		t.Errorf("the volume was not deleted: %v", err)
	}
}
