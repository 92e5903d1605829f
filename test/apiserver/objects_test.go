//go:build e2e

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	managedBy     = "snapshot.storage.kubernetes.io/managed-by"
	snapshotGroup = "snapshot.storage.k8s.io"
	snapshots     = "/apis/" + snapshotGroup + "/v1"
	contents      = snapshots + "/volumesnapshotcontents"
	bindByHand    = `{"spec": {"volumeName": %q}}`
	isBound       = `{"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}`
)

// objects is a part of a client: the objects of one kind.
type objects[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// create makes an object until the test ends.
func create[T metav1.Object](t *testing.T, kind objects[T], object T) T {
	t.Helper()
	made, err := kind.Create(t.Context(), object, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		if err := kind.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); !apierrors.IsNotFound(err) {
			must(t, err)
		}
	})
	return made
}

// classOf is a storage class of the driver.
func classOf(name string, parameters map[string]string) *storagev1.StorageClass {
	late, yes := storagev1.VolumeBindingWaitForFirstConsumer, true
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: &late, AllowVolumeExpansion: &yes, Parameters: parameters,
	}
}

func newClass(t *testing.T, name string, parameters map[string]string) {
	t.Helper()
	create(t, admin.StorageV1().StorageClasses(), classOf(name, parameters))
}

// capacityOf is what csi-provisioner publishes for a node.
func capacityOf(node, class, capacity string) *storagev1.CSIStorageCapacity {
	size := resource.MustParse(capacity)
	return &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{GenerateName: node + "-", Labels: map[string]string{"csi.storage.k8s.io/drivername": driver}},
		NodeTopology:     &metav1.LabelSelector{MatchLabels: map[string]string{topology: node}},
		StorageClassName: class, Capacity: &size, MaximumVolumeSize: &size,
	}
}

func publishCapacity(t *testing.T, node, class, capacity string) (name string) {
	t.Helper()
	return create(t, admin.StorageV1().CSIStorageCapacities(system), capacityOf(node, class, capacity)).Name
}

// affinityTo is that of a volume on a node.
func affinityTo(node string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: topology, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
}

// makeNode makes a node that pods can be scheduled to.
func makeNode(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	letSchedule(t, create(t, admin.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
}

// letSchedule lets pods be scheduled to a node.
func letSchedule(t *testing.T, node *corev1.Node) {
	t.Helper()
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100"), corev1.ResourceCPU: resource.MustParse("8")}
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node, err := admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
	must(t, err)
	node.Spec.Taints = nil // the API server taints a new node as not ready
	_, err = admin.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	must(t, err)
}

// makeAccount makes the account default of the namespace, which no controller makes here: pods need it.
func makeAccount(t *testing.T, namespace string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		must(t, err)
	}
}

// tokenOfAccount answers a token of an account of the driver's namespace.
func tokenOfAccount(t *testing.T, name string) string {
	t.Helper()
	token, err := admin.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return token.Status.Token
}

// patchClaim changes a claim with an admin's rights.
func patchClaim(t *testing.T, claim *corev1.PersistentVolumeClaim, subresource, patch string) *corev1.PersistentVolumeClaim {
	t.Helper()
	now, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource)
	must(t, err)
	return now
}

func request(t *testing.T, claim *corev1.PersistentVolumeClaim, size string) {
	t.Helper()
	patchClaim(t, claim, "", fmt.Sprintf(`{"spec": {"resources": {"requests": {"storage": %q}}}}`, size))
}

func patchVolume(t *testing.T, name, subresource, patch string) {
	t.Helper()
	_, err := admin.CoreV1().PersistentVolumes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource)
	must(t, err)
}

// dropVolume deletes a PersistentVolume that finalizers hold, if it is there.
func dropVolume(t *testing.T, name string) {
	t.Helper()
	volumes := admin.CoreV1().PersistentVolumes()
	_, err := volumes.Patch(context.Background(), name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	if err == nil {
		err = volumes.Delete(context.Background(), name, metav1.DeleteOptions{})
	}
	if !apierrors.IsNotFound(err) {
		must(t, err)
	}
}

// dropAtEnd removes a claim and its volume when the test ends. A volume controller would call the claim lost, which the doctor of a later test finds.
func dropAtEnd(t *testing.T, claim *corev1.PersistentVolumeClaim, volume string) {
	t.Helper()
	t.Cleanup(func() {
		dropVolume(t, volume)
		claims := admin.CoreV1().PersistentVolumeClaims(claim.Namespace)
		_, err := claims.Patch(context.Background(), claim.Name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		if err == nil {
			err = claims.Delete(context.Background(), claim.Name, metav1.DeleteOptions{})
		}
		if !apierrors.IsNotFound(err) {
			must(t, err)
		}
	})
}

// bindTo binds a claim to its volume, as Kubernetes' volume controller does.
func bindTo(t *testing.T, claim *corev1.PersistentVolumeClaim, volume string) *corev1.PersistentVolumeClaim {
	t.Helper()
	patchClaim(t, claim, "", fmt.Sprintf(bindByHand, volume))
	return patchClaim(t, claim, "status", isBound)
}

func snapshotsIn(t *testing.T) string {
	return snapshots + "/namespaces/" + namespace(t) + "/volumesnapshots"
}

// raw sends a request with a body, and answers what comes back.
func raw(t *testing.T, request *rest.Request, body string, args ...any) (made metav1.PartialObjectMetadata) {
	t.Helper()
	text, err := request.Body(fmt.Appendf(nil, body, args...)).Do(t.Context()).Raw()
	must(t, err)
	must(t, json.Unmarshal(text, &made))
	return made
}

// post makes an object of the snapshot API.
func post(t *testing.T, path, kind, name, labels, spec string, args ...any) metav1.PartialObjectMetadata {
	t.Helper()
	head := fmt.Sprintf(`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": %q, "metadata": {"name": %q, "labels": %s}, `, kind, name, labels)
	return raw(t, admin.RESTClient().Post().AbsPath(path), "%s", head+fmt.Sprintf(spec, args...)+"}")
}

// patchRaw changes an object of the snapshot API with an admin's rights.
func patchRaw(t *testing.T, path []string, body string, args ...any) {
	t.Helper()
	raw(t, admin.RESTClient().Patch(types.MergePatchType).AbsPath(path...), body, args...)
}

// readRaw reads an object of the snapshot API.
func readRaw(t *testing.T, into any, path ...string) {
	t.Helper()
	text, err := admin.RESTClient().Get().AbsPath(path...).Do(t.Context()).Raw()
	must(t, err)
	must(t, json.Unmarshal(text, into))
}

// there answers how to ask for an object by its path.
func there(t *testing.T, path ...string) func() error {
	return func() error { return admin.RESTClient().Get().AbsPath(path...).Do(t.Context()).Error() }
}

// removeRaw deletes an object of the snapshot API that finalizers hold, if it is there.
func removeRaw(t *testing.T, path ...string) {
	t.Helper()
	_ = admin.RESTClient().Patch(types.MergePatchType).AbsPath(path...).Body([]byte(`{"metadata": {"finalizers": null}}`)).Do(context.Background()).Error()
	if err := admin.RESTClient().Delete().AbsPath(path...).Do(context.Background()).Error(); !apierrors.IsNotFound(err) {
		must(t, err)
	}
}

// makeSnapshot makes a VolumeSnapshot and its content on a node, bound to each other.
func makeSnapshot(t *testing.T, name, class, node, content string) {
	t.Helper()
	made := post(t, snapshotsIn(t), "VolumeSnapshot", name, "{}", `"spec": {"source": {"persistentVolumeClaimName": "data"}, "volumeSnapshotClassName": %q}`, class)
	patchRaw(t, []string{snapshotsIn(t), name, "status"}, `{"status": {"boundVolumeSnapshotContentName": %q}}`, content)
	makeContent(t, name, string(made.UID), class, node, content, "a/b")
}

// makeContent makes the content of a new snapshot of a volume, which the snapshot controller has given to a node.
func makeContent(t *testing.T, snapshot, uid, class, node, content, volume string) {
	t.Helper()
	post(t, contents, "VolumeSnapshotContent", content, fmt.Sprintf(`{%q: %q}`, managedBy, node),
		`"spec": {"driver": %q, "deletionPolicy": "Delete", "source": {"volumeHandle": %q}, "volumeSnapshotClassName": %q,
		"volumeSnapshotRef": {"kind": "VolumeSnapshot", "namespace": %q, "name": %q, "uid": %q}}`, driver, volume, class, namespace(t), snapshot, uid)
	patchRaw(t, []string{contents, content}, `{"metadata": {"finalizers": ["snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"]}}`)
	t.Cleanup(func() { removeRaw(t, contents, content) }) // the plugin of another test would report it
}

// makeSnapshotClass makes a VolumeSnapshotClass until the test ends; annotations are JSON.
func makeSnapshotClass(t *testing.T, name, annotations string) {
	t.Helper()
	const classes = snapshots + "/volumesnapshotclasses"
	post(t, classes, "VolumeSnapshotClass", name, "{}", `"driver": %q, "deletionPolicy": "Delete"`, driver)
	patchRaw(t, []string{classes, name}, `{"metadata": {"annotations": %s}}`, annotations)
	t.Cleanup(func() { removeRaw(t, classes, name) })
}

// markReady does what csi-snapshotter does when the snapshot is there.
func markReady(t *testing.T, content, handle string) {
	t.Helper()
	patchRaw(t, []string{contents, content, "status"}, `{"status": {"readyToUse": true, "snapshotHandle": %q}}`, handle)
}
