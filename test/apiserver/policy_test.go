//go:build e2e

package apiserver

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
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
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: topology, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}},
	}
	return pv
}

// ofOther is a part of the refusal of a class that otherClass makes.
const ofOther = "whose provisioner is other.io"

// otherClass makes a StorageClass of another driver, and answers its name.
func otherClass(t *testing.T) (name string) {
	t.Helper()
	classes, class := admin.StorageV1().StorageClasses(), &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "others"}, Provisioner: "other.io"}
	_, err := classes.Create(t.Context(), class, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, classes.Delete(context.Background(), class.Name, metav1.DeleteOptions{})) })
	return class.Name
}

// TestPolicyForPersistentVolumes has a node's token create, change and delete a volume as csi-provisioner and the agent do; what the policy
// refuses, a real API server refuses.
func TestPolicyForPersistentVolumes(t *testing.T) {
	here := newNode(t, "a")
	client, err := kubernetes.NewForConfig(here.restConfig())
	must(t, err)
	volumes, ctx := client.CoreV1().PersistentVolumes(), t.Context()
	claim := newClaim(t, "data", func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = here.name })
	others := otherClass(t)
	create := func(change func(*corev1.PersistentVolume)) error {
		pv := provisioned(here.name, claim)
		change(pv)
		_, err := volumes.Create(ctx, pv, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	soon(t, "the API server's policy knows the other class", func() bool {
		err := create(func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = others })
		return err != nil && strings.Contains(err.Error(), ofOther)
	})
	secret := &corev1.SecretReference{Namespace: "kube-system", Name: "root"}
	const only, noSecret, asClass = "may write only volumes", "no volume that refers to a Secret", "are those of its storage class thin"
	const either = "Secret" // both policies refuse it, and the API server reports one of them
	expectTried(t,
		tried{"create its volume", "", create(func(*corev1.PersistentVolume) {})},
		tried{"nodeStageSecretRef", either, create(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.NodeStageSecretRef = secret })},
		tried{"nodePublishSecretRef", noSecret, create(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.NodePublishSecretRef = secret })},
		tried{"nodeExpandSecretRef", either, create(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.NodeExpandSecretRef = secret })},
		tried{"controllerExpandSecretRef", noSecret, create(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ControllerExpandSecretRef = secret })},
		tried{"controllerPublishSecretRef", noSecret, create(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ControllerPublishSecretRef = secret })},
		tried{"another name", only, create(func(pv *corev1.PersistentVolume) { pv.Name = "stolen" })},
		tried{"another claim", only, create(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "another" })},
		tried{"another logical volume", only, create(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = groupUUID + "/pvc-x" })},
		tried{"another node", only, create(func(pv *corev1.PersistentVolume) {
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = "x"
		})},
		tried{"a label", only, create(func(pv *corev1.PersistentVolume) { pv.Labels = map[string]string{"a": "b"} })},
		tried{"another driver's class", ofOther, create(func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = others })},
		tried{"mount options", asClass, create(func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"dev"} })},
		tried{"reclaim policy", asClass, create(func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		})},
	)
	made, err := volumes.Create(ctx, provisioned(here.name, claim), metav1.CreateOptions{})
	must(t, err)
	patch := func(body string) error {
		_, err := volumes.Patch(ctx, made.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
	remove := func() error { return volumes.Delete(ctx, made.Name, metav1.DeleteOptions{}) }
	expectTried(t,
		tried{"enlarge", "", patch(`{"spec": {"capacity": {"storage": "2Gi"}}}`)},
		tried{"shrink", only, patch(`{"spec": {"capacity": {"storage": "1Gi"}}}`)},
		tried{"retain", only, patch(`{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}`)},
		tried{"label", only, patch(`{"metadata": {"labels": {"a": "b"}}}`)},
		tried{"add a reference to a Secret", only, patch(`{"spec": {"csi": {"controllerExpandSecretRef": {"namespace": "kube-system", "name": "root"}}}}`)},
		tried{"take Kubernetes' finalizer away", only, patch(`{"metadata": {"finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"]}}`)},
		tried{"delete while its claim is there", only, remove()},
	)
	patchVolume(t, made.Name, "status", `{"status": {"phase": "Released"}}`)
	expectTried(t, tried{"delete", "", remove()}, tried{"let go", "", patch(`{"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}}`)})
	patchVolume(t, made.Name, "", `{"metadata": {"finalizers": null}}`)
}

// TestPolicyForClaims: a node gives its unbound claims back, and changes nothing else of them.
func TestPolicyForClaims(t *testing.T) {
	here := newNode(t, "a")
	client, err := kubernetes.NewForConfig(here.restConfig())
	must(t, err)
	claim := newClaim(t, "data", func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = here.name })
	bound := here.bound(t, "bound", corev1.PersistentVolumeFilesystem)
	patch := func(claim *corev1.PersistentVolumeClaim, body string, sub ...string) error {
		_, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	annotate := func(name, value string) string {
		return fmt.Sprintf(`{"metadata": {"annotations": {%q: %s}}}`, name, value)
	}
	noted := func(size string) string {
		return fmt.Sprintf(`{"status": {"allocatedResources": {"storage": %q}}}`, size)
	}
	request(t, bound, "2Gi")
	const only = "may give back unbound claims"
	expectTried(t,
		tried{"label", only, patch(claim, `{"metadata": {"labels": {"a": "b"}}}`)},
		tried{"annotate", only, patch(claim, annotate("a", `"b"`))},
		tried{"hand over", only, patch(claim, annotate(selected, `"x"`))},
		tried{"bind", only, patch(claim, `{"spec": {"volumeName": "x"}}`)},
		tried{"ask for more", only, patch(bound, `{"spec": {"resources": {"requests": {"storage": "3Gi"}}}}`)},
		tried{"give a bound one back", only, patch(bound, annotate(selected, "null"))},
		tried{"note another condition", only, patch(bound, `{"status": {"conditions": [{"type": "ModifyVolumeError", "status": "True"}]}}`, "status")},
		tried{"note the size of a file system", only, patch(bound, `{"status": {"capacity": {"storage": "2Gi"}}}`, "status")},
		tried{"note an expansion that no user requested", only, patch(bound, noted("3Gi"), "status")},
		tried{"note an expansion", "", patch(bound, noted("2Gi"), "status")},
		tried{"have csi-provisioner look again", "", patch(claim, annotate("nodelvm.io/provisioning-retried-at", `"now"`))},
		tried{"protect a source", "", patch(claim, `{"metadata": {"finalizers": ["kubernetes.io/pvc-protection", "provisioner.storage.kubernetes.io/cloning-protection"]}}`)},
		tried{"give back", "", patch(claim, annotate(selected, "null"))},
	)
}

// TestPolicyForClaimsOfOtherDrivers: a node notes no expansion on a claim of another driver's class, although no node is selected for
// it, and takes no restore of such a class.
func TestPolicyForClaimsOfOtherDrivers(t *testing.T) {
	here := newNode(t, "a")
	client, err := kubernetes.NewForConfig(here.restConfig())
	must(t, err)
	others := otherClass(t)
	patch := func(claim *corev1.PersistentVolumeClaim, body string, sub ...string) error {
		_, err := client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	immediate := here.boundOf(t, "immediate", others, corev1.PersistentVolumeFilesystem)
	patchClaim(t, immediate, "", `{"metadata": {"annotations": {"`+selected+`": null, "volume.kubernetes.io/storage-provisioner": null}}}`)
	theirs := here.boundOf(t, "theirs", "thin", corev1.PersistentVolumeFilesystem)
	patchClaim(t, theirs, "", `{"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "other.io"}}}`)
	restored := newClaim(t, "restored", func(c *corev1.PersistentVolumeClaim) {
		group := "snapshot.storage.k8s.io"
		c.Spec.StorageClassName, c.Spec.DataSource = &others, &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "snap"}
	})
	const expansion = `{"status": {"allocatedResources": {"storage": "1Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"}}}`
	soon(t, "the API server's policy knows the other class", func() bool {
		err := patch(immediate, expansion, "status")
		return err != nil && strings.Contains(err.Error(), ofOther)
	})
	expectTried(t,
		tried{"note an expansion on another driver's claim", ofOther, patch(immediate, expansion, "status")},
		tried{"note an expansion of a volume that another driver provisioned", "may give back", patch(theirs, expansion, "status")},
		tried{"take a restore of another driver's class", ofOther, patch(restored, fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, selected, here.name))},
		tried{"protect the source of a clone", "", patch(immediate, `{"metadata": {"finalizers": ["kubernetes.io/pvc-protection", "provisioner.storage.kubernetes.io/cloning-protection"]}}`)},
	)
}

// TestPolicyForOtherObjects: capacity, snapshot contents and events.
func TestPolicyForOtherObjects(t *testing.T) {
	here := newNode(t, "a")
	client, err := kubernetes.NewForConfig(here.restConfig())
	must(t, err)
	pod, err := admin.CoreV1().Pods(system).Get(t.Context(), "nodelvm-"+here.name, metav1.GetOptions{})
	must(t, err)
	size, yes := resource.MustParse("9Gi"), true
	publish := func(change func(*storagev1.CSIStorageCapacity)) error {
		c := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{GenerateName: "csisc-", Labels: map[string]string{
			"csi.storage.k8s.io/drivername": driver, "csi.storage.k8s.io/managed-by": "external-provisioner-" + here.name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: &yes}}},
			StorageClassName: "thin", Capacity: &size, NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{topology: here.name}}}
		change(c)
		_, err := client.StorageV1().CSIStorageCapacities(system).Create(t.Context(), c, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	tell := func(component string) error {
		_, err := client.CoreV1().Events("default").Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "x."},
			InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: here.name}, Source: corev1.EventSource{Component: component}}, metav1.CreateOptions{})
		return err
	}
	ours := preProvisioned(t, "ours", driver, groupUUID+"/old", `{"`+managedBy+`": "`+here.name+`"}`)
	patch := func(body string, sub ...string) error {
		return client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(append([]string{contents, ours}, sub...)...).Body([]byte(body)).Do(t.Context()).Error()
	}
	const capacity, content, event = "may publish only its own capacity", "may update only snapshot contents", "may write events only in the name of nodelvm.io"
	expectTried(t,
		tried{"publish", "", publish(func(*storagev1.CSIStorageCapacity) {})},
		tried{"publish elsewhere", capacity, publish(func(c *storagev1.CSIStorageCapacity) { c.NodeTopology.MatchLabels[topology] = "x" })},
		tried{"publish for another driver's class", ofOther, publish(func(c *storagev1.CSIStorageCapacity) { c.StorageClassName = otherClass(t) })},
		tried{"publish for another owner", capacity, publish(func(c *storagev1.CSIStorageCapacity) { c.OwnerReferences[0].UID = "x" })},
		tried{"publish with a label", capacity, publish(func(c *storagev1.CSIStorageCapacity) { c.Labels["a"] = "b" })},
		tried{"write an event", "", tell(driver)},
		tried{"write csi-provisioner's event", "", tell(driver + "_x_1")},
		tried{"write the kubelet's event", event, tell("kubelet")},
		tried{"mark a content", "", patch(`{"metadata": {"annotations": {"snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes"}}}`)},
		tried{"annotate a content", content, patch(`{"metadata": {"annotations": {"a": "b"}}}`)},
		tried{"retarget a content", content, patch(`{"spec": {"deletionPolicy": "Delete"}}`)},
		tried{"note another snapshot", content, patch(`{"status": {"snapshotHandle": "`+groupUUID+`/s-0123456789abcdef0123456789abcdef"}}`, "status")},
		tried{"note the snapshot", "", patch(`{"status": {"readyToUse": true, "snapshotHandle": "`+groupUUID+`/old"}}`, "status")},
	)
}

// TestPolicyForNodes: no node can get another node's topology label, not even with an admin's account.
func TestPolicyForNodes(t *testing.T) {
	here := newNode(t, "a")
	nodes := admin.CoreV1().Nodes()
	create := func(label string) error {
		_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "thief", Labels: map[string]string{topology: label}}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	label := func(value string, sub ...string) error {
		_, err := nodes.Patch(t.Context(), here.name, types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"labels": {%q: %q}}}`, topology, value), metav1.PatchOptions{}, sub...)
		return err
	}
	const other = "can only be"
	expectTried(t,
		tried{"register with the label", "", create("thief")},
		tried{"register as another node", other, create(here.name)},
		tried{"become another node", other, label("thief")},
		tried{"become another node by way of the status", other, label("thief", "status")},
		tried{"set the label", "", label(here.name)},
		tried{"set the label with the status", "", label(here.name, "status")},
	)
}
