//go:build e2e

package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// groupUUID is a volume group's, as handles have it.
const groupUUID = "zMcZgk-9mXf-8nKJ-5S1z-uDPo-VH5c-s4Gjrb"

// tried is a write with a node's token, and what became of it; refused is a part of the policy's message, "" if it is admitted.
type tried struct {
	what, refused string
	err           error
}

func expectTried(t *testing.T, list ...tried) {
	t.Helper()
	for _, w := range list {
		switch {
		case w.refused == "" && w.err != nil:
			t.Errorf("%s: refused: %v", w.what, w.err)
		case w.refused != "" && (!apierrors.IsForbidden(w.err) || !strings.Contains(w.err.Error(), w.refused)):
			t.Errorf("%s: %v; want a refusal that says %q", w.what, w.err, w.refused)
		}
	}
}

// provisioned is the volume that csi-provisioner creates for a claim.
func provisioned(node string, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	name := "pvc-" + string(claim.UID)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		"pv.kubernetes.io/provisioned-by":                            driver,
		"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
		"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
	}, Finalizers: []string{"external-provisioner.volume.kubernetes.io/finalizer"}}}
	pv.Spec = corev1.PersistentVolumeSpec{
		StorageClassName: "thin", AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
			UID: claim.UID, ResourceVersion: claim.ResourceVersion},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver, VolumeHandle: groupUUID + "/" + name,
			VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "x", "nodelvm.io/lv-uuid": "u", "nodelvm.io/volume-group": "vg"},
		}},
		NodeAffinity: affinityTo(node),
	}
	return pv
}

// TestPolicies: the API server goes by each policy of the manifest, with its binding and parameters, and by RBAC: of each kind of object a
// node's token may do what its driver and sidecars do, and is refused something else. deploy/render tries each rule of the policies.
func TestPolicies(t *testing.T) {
	here, other := newNode(t, "a"), newNode(t, "b")
	client := here.client(t)
	volumes, core := client.CoreV1().PersistentVolumes(), client.CoreV1()
	claim := newClaim(t, "data", func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = here.name })
	bound, theirs := here.bound(t, "bound", corev1.PersistentVolumeFilesystem), other.bound(t, "theirs", corev1.PersistentVolumeFilesystem)
	request(t, bound, "2Gi")
	class := classOf("others", nil)
	class.Provisioner = "other.io"
	create(t, admin.StorageV1().StorageClasses(), class)

	volume := func(change func(*corev1.PersistentVolume)) error {
		pv := provisioned(here.name, claim)
		change(pv)
		_, err := volumes.Create(t.Context(), pv, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	ofOther := func() error {
		return volume(func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = class.Name })
	}
	const anotherDriver = "whose provisioner is other.io"
	soon(t, "the API server's policy knows the other class", func() bool { return strings.Contains(fmt.Sprint(ofOther()), anotherDriver) })
	expectTried(t,
		tried{"create its volume", "", volume(func(*corev1.PersistentVolume) {})},
		tried{"create a volume that refers to a Secret", "no volume that refers to a Secret", volume(func(pv *corev1.PersistentVolume) {
			pv.Spec.CSI.NodePublishSecretRef = &corev1.SecretReference{Namespace: "kube-system", Name: "root"}
		})},
		tried{"create a volume of another driver's class", anotherDriver, ofOther()},
		tried{"create a volume that is not as its class says", "are those of its storage class thin", volume(func(pv *corev1.PersistentVolume) {
			pv.Spec.MountOptions = []string{"dev"}
		})},
		tried{"delete another node's volume", "nodelvm-node-restriction", volumes.Delete(t.Context(), theirs.Spec.VolumeName, metav1.DeleteOptions{})},
	)

	patch := func(claim *corev1.PersistentVolumeClaim, body string, sub ...string) error {
		_, err := core.PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	const expansion, backOnly = `{"status": {"allocatedResources": {"storage": "2Gi"}}}`, "may give back unbound claims"
	expectTried(t,
		tried{"note an expansion", "", patch(bound, expansion, "status")},
		tried{"note an expansion of another node's claim", backOnly, patch(theirs, expansion, "status")},
		tried{"give its claim to another node", backOnly, patch(claim, fmt.Sprintf(`{"metadata": {"annotations": {%q: "x"}}}`, selected))},
		tried{"have csi-provisioner look again", "", patch(claim, `{"metadata": {"annotations": {"nodelvm.io/provisioning-retried-at": "now"}}}`)},
		tried{"delete its claim", `cannot delete resource "persistentvolumeclaims"`, core.PersistentVolumeClaims(claim.Namespace).Delete(t.Context(), claim.Name, metav1.DeleteOptions{})},
		tried{"give its claim back", "", patch(claim, fmt.Sprintf(`{"metadata": {"annotations": {%q: null}}}`, selected))},
	)

	publish := func(c *storagev1.CSIStorageCapacity) error {
		pod, err := admin.CoreV1().Pods(system).Get(t.Context(), "nodelvm-"+here.name, metav1.GetOptions{})
		must(t, err)
		c.Labels["csi.storage.k8s.io/managed-by"] = "external-provisioner-" + here.name
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
		c.OwnerReferences[0].BlockOwnerDeletion = nil
		_, err = client.StorageV1().CSIStorageCapacities(system).Create(t.Context(), c, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	future := capacityOf(here.name, "thin", "1Ti")
	future.NodeTopology.MatchLabels = map[string]string{api.LabelTemplateNode: "true", "pool": "nvme"}
	tell := func(component string) error {
		_, err := core.Events("default").Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "x."},
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: here.name}, Source: corev1.EventSource{Component: component}}, metav1.CreateOptions{})
		return err
	}
	asks, err := kubeclient.NewClientFor(config(here.token))
	must(t, err)
	now, clock := asks.Now(t.Context(), here.name)
	if since := time.Since(now); since < -time.Second || since > time.Minute { // the API server truncates it to seconds
		t.Errorf("the API server's time is %s, %s ago", now, since)
	}
	_, secret := core.Secrets(system).List(t.Context(), metav1.ListOptions{})
	expectTried(t,
		tried{"publish its capacity", "", publish(capacityOf(here.name, "thin", "9Gi"))},
		tried{"publish another node's capacity", "may publish only its own capacity", publish(capacityOf(other.name, "thin", "9Gi"))},
		tried{"publish what a node group will have", "may publish only its own capacity", publish(future)},
		tried{"publish for another driver's class", anotherDriver, publish(capacityOf(here.name, class.Name, "9Gi"))},
		tried{"write an event", "", tell(driver)},
		tried{"ask for the API server's time", "", clock},
		tried{"write the kubelet's event", "may write events only in the name of nodelvm.io", tell("kubelet")},
		tried{"read Secrets", `cannot list resource "secrets"`, secret},
	)

	ours := preProvisioned(t, "ours", driver, groupUUID+"/old", `{"`+managedBy+`": "`+here.name+`"}`)
	content := func(body string, sub ...string) error {
		return core.RESTClient().Patch(types.MergePatchType).AbsPath(append([]string{contents, ours}, sub...)...).Body([]byte(body)).Do(t.Context()).Error()
	}
	label := func(value string) error { // not even with an admin's account
		_, err := admin.CoreV1().Nodes().Patch(t.Context(), here.name, types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"labels": {%q: %q}}}`, topology, value), metav1.PatchOptions{})
		return err
	}
	expectTried(t,
		tried{"note the snapshot", "", content(`{"status": {"readyToUse": true, "snapshotHandle": "`+groupUUID+`/old"}}`, "status")},
		tried{"annotate a content", "may update only snapshot contents", content(`{"metadata": {"annotations": {"a": "b"}}}`)},
		tried{"label a node as itself", "", label(here.name)},
		tried{"label a node as another", "can only be", label(other.name)},
	)
}
