//go:build e2e

package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

// forge makes a PersistentVolume on a node that names a claim which is bound to another volume. Its notes say that its node
// was lost long ago.
func (n *node) forge(t *testing.T, name string, of *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	t.Helper()
	pv := expectVolumeKept(t, of).DeepCopy()
	pv.ObjectMeta = metav1.ObjectMeta{Name: name, Finalizers: []string{provisionerHolds}, Annotations: map[string]string{
		"nodelvm.io/lost-since": "2020-01-02T03:04:05Z", "pv.kubernetes.io/provisioned-by": driver,
	}}
	pv.Spec.StorageClassName, pv.Spec.CSI.Driver = optedIn, driver
	pv.Spec.CSI.VolumeHandle = "AAAAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGGGG/" + name
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{n.name}
	change(pv)
	pv, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patchVolume(t, name, "status", `{"status": {"phase": "Bound"}}`)
	return pv
}

// TestJanitorIgnoresForgedClaimReferences: a PersistentVolume on a lost node that names a claim which is bound to another
// volume has neither that claim nor its pod deleted, told, or changed; whatever driver made the claim's volume.
func TestJanitorIgnoresForgedClaimReferences(t *testing.T) {
	lost, stays := newNode(t, "lost"), newNode(t, "stays")
	real := lost.inUse(t, "real", optedIn, corev1.PersistentVolumeReclaimDelete)
	victims := []*corev1.PersistentVolumeClaim{
		stays.inUse(t, "ours", optedIn, corev1.PersistentVolumeReclaimDelete),
		stays.inUse(t, "theirs", optedIn, corev1.PersistentVolumeReclaimDelete),
		lost.inUse(t, "cloned", "thin", corev1.PersistentVolumeReclaimDelete),
	}
	replaceDriver(t, victims[1])
	pod := waitingPod(t, victims[0], "")
	forged := []string{}
	for i, victim := range victims {
		pv := lost.forge(t, fmt.Sprintf("forged-%s-%d", lost.name, i), victim, func(pv *corev1.PersistentVolume) {
			if i == 2 { // as the victim's own volume, but in a class that releases
				pv.Spec.CSI.VolumeHandle = expectVolumeKept(t, victim).Spec.CSI.VolumeHandle
			}
		})
		forged = append(forged, pv.Name)
	}
	playVolumeController(t, real)
	before := map[string]string{}
	for _, victim := range victims {
		before[victim.Name] = versionOf(t, victim)
	}
	lost.remove(t)
	startJanitor(t, "a", 0)
	for i, name := range forged {
		if why := eventOn(t, "default", name, "ClaimMismatch"); !strings.Contains(why, victims[i].Name) && !strings.Contains(why, "same volume handle") {
			t.Errorf("PersistentVolume %s is told %q", name, why)
		}
	}
	untilGone(t, "the claim of the lost node", claimOf(t, real))
	untilGone(t, "its volume", volumeOf(t, real))
	for _, victim := range victims {
		expectKept(t, victim)
		if now := versionOf(t, victim); now != before[victim.Name] {
			t.Errorf("claim %s was changed", victim.Name)
		}
	}
	for _, victim := range victims[:2] {
		events, err := admin.CoreV1().Events(victim.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + victim.Name})
		if err != nil || len(events.Items) > 0 {
			t.Errorf("claim %s is told of a volume that is not its own: %+v, %v", victim.Name, events.Items, err)
		}
	}
	if now, err := admin.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{}); err != nil || now.DeletionTimestamp != nil {
		t.Errorf("the victim's pod is not kept: %v", err)
	}
	for _, name := range forged { // what they are held by is for no later test
		patchVolume(t, name, "", `{"metadata": {"finalizers": null}}`)
		must(t, admin.CoreV1().PersistentVolumes().Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

func versionOf(t *testing.T, claim *corev1.PersistentVolumeClaim) string {
	t.Helper()
	now, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return now.ResourceVersion
}

const snapshots = "/apis/snapshot.storage.k8s.io/v1"

// makeSnapshot makes a VolumeSnapshot and its content on a node, bound to each other.
func makeSnapshot(t *testing.T, namespace, name, class, node, contentName string) {
	t.Helper()
	post := func(path, body string) {
		t.Helper()
		if err := admin.RESTClient().Post().AbsPath(path).Body([]byte(body)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	path := fmt.Sprintf("%s/namespaces/%s/volumesnapshots", snapshots, namespace)
	post(path, fmt.Sprintf(`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": %q},
		"spec": {"source": {"persistentVolumeClaimName": "data"}, "volumeSnapshotClassName": %q}}`, name, class))
	err := admin.RESTClient().Patch("application/merge-patch+json").AbsPath(path, name, "status").
		Body([]byte(fmt.Sprintf(`{"status": {"boundVolumeSnapshotContentName": %q}}`, contentName))).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	makeContent(t, namespace, name, class, node, contentName)
}

// bindSnapshot makes a VolumeSnapshot for a content that is there, and binds them as the snapshot controller does.
func bindSnapshot(t *testing.T, namespace, name, contentName string) {
	t.Helper()
	path := fmt.Sprintf("%s/namespaces/%s/volumesnapshots", snapshots, namespace)
	body := fmt.Appendf(nil, `{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": %q},
		"spec": {"source": {"volumeSnapshotContentName": %q}}}`, name, contentName)
	var made metav1.PartialObjectMetadata
	text, err := admin.RESTClient().Post().AbsPath(path).Body(body).Do(t.Context()).Raw()
	if err != nil || json.Unmarshal(text, &made) != nil {
		t.Fatal(err)
	}
	for _, patch := range []struct{ path, body string }{
		{contents + "/" + contentName, fmt.Sprintf(`{"spec": {"volumeSnapshotRef": {"uid": %q}}}`, made.UID)},
		{path + "/" + name + "/status", fmt.Sprintf(`{"status": {"boundVolumeSnapshotContentName": %q}}`, contentName)},
	} {
		if err := admin.RESTClient().Patch("application/merge-patch+json").AbsPath(patch.path).Body([]byte(patch.body)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// makeContent makes a VolumeSnapshotContent that names a snapshot which is there.
func makeContent(t *testing.T, namespace, name, class, node, contentName string) {
	t.Helper()
	var snapshot metav1.PartialObjectMetadata
	text, err := admin.RESTClient().Get().AbsPath(snapshots, "namespaces", namespace, "volumesnapshots", name).Do(t.Context()).Raw()
	if err != nil || json.Unmarshal(text, &snapshot) != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": %q,
		"labels": {"snapshot.storage.kubernetes.io/managed-by": %q}, "finalizers": ["snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"]},
		"spec": {"driver": %q, "deletionPolicy": "Delete", "source": {"volumeHandle": "a/b"}, "volumeSnapshotClassName": %q,
		"volumeSnapshotRef": {"kind": "VolumeSnapshot", "namespace": %q, "name": %q, "uid": %q}}}`, contentName, node, driver, class, namespace, name, snapshot.UID)
	if err := admin.RESTClient().Post().AbsPath(contents).Body([]byte(body)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

// makeReleaseSnapshotClass makes a VolumeSnapshotClass that says release.
func makeReleaseSnapshotClass(t *testing.T, name string) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
		"metadata": {"name": %q, "annotations": {%q: "release"}}, "driver": %q, "deletionPolicy": "Delete"}`, name, api.AnnotationOnNodeLoss, driver)
	if err := admin.RESTClient().Post().AbsPath(snapshots, "volumesnapshotclasses").Body([]byte(body)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

// TestJanitorIgnoresForgedContents: a content on a lost node that names a snapshot which is bound to another content
// does not have that snapshot deleted or told.
func TestJanitorIgnoresForgedContents(t *testing.T) {
	lost, stays := newNode(t, "lost"), newNode(t, "stays")
	ns, class := namespace(t), "snap-release-forged"
	makeReleaseSnapshotClass(t, class)
	makeSnapshot(t, ns, "released", class, lost.name, "janitor-real")
	makeSnapshot(t, ns, "victim", class, stays.name, "janitor-victim")
	makeContent(t, ns, "victim", class, lost.name, "janitor-forged")
	lost.remove(t)
	startJanitor(t, "a", 0)
	there := func(path ...string) func() error {
		return func() error { return admin.RESTClient().Get().AbsPath(path...).Do(t.Context()).Error() }
	}
	eventOn(t, "default", "janitor-forged", "SnapshotMismatch")
	untilGone(t, "the snapshot of the lost node", there(snapshots, "namespaces", ns, "volumesnapshots", "released"))
	for _, path := range [][]string{{snapshots, "namespaces", ns, "volumesnapshots", "victim"}, {contents, "janitor-victim"}, {contents, "janitor-forged"}} {
		if err := there(path...)(); err != nil {
			t.Errorf("%v is not kept: %v", path, err)
		}
	}
	events, err := admin.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=victim"})
	if err != nil || len(events.Items) > 0 {
		t.Errorf("the snapshot is told of a content that is not its own: %+v, %v", events.Items, err)
	}
	for _, name := range []string{"janitor-forged", "janitor-victim", "janitor-real"} { // what they are held by is for no later test
		_ = admin.RESTClient().Delete().AbsPath(contents, name).Do(t.Context()).Error()
		_ = admin.RESTClient().Patch("application/merge-patch+json").AbsPath(contents, name).Body([]byte(`{"metadata": {"finalizers": null}}`)).Do(t.Context()).Error()
	}
}
