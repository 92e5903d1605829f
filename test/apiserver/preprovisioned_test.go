//go:build e2e

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const managedBy = "snapshot.storage.kubernetes.io/managed-by"

// preProvisioned makes a content for a snapshot that is there already; labels are JSON.
func preProvisioned(t *testing.T, name, driver, handle, labels string) string {
	t.Helper()
	name = namespace(t) + "-" + name
	body := fmt.Sprintf(`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
		"metadata": {"name": %q, "labels": %s},
		"spec": {"driver": %q, "deletionPolicy": "Retain", "source": {"snapshotHandle": %q},
			"volumeSnapshotRef": {"namespace": %q, "name": %q}}}`, name, labels, driver, handle, namespace(t), name)
	if err := admin.RESTClient().Post().AbsPath(contents).Body([]byte(body)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the doctor of a later test would report it
		must(t, admin.RESTClient().Delete().AbsPath(contents, name).Do(context.Background()).Error())
	})
	return name
}

// unlabelledContent makes the content of a new snapshot as a snapshot controller without --enable-distributed-snapshotting does.
func unlabelledContent(t *testing.T, name, driver, volume string) string {
	t.Helper()
	name = namespace(t) + "-" + name
	body := fmt.Sprintf(`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
		"metadata": {"name": %q}, "spec": {"driver": %q, "deletionPolicy": "Delete", "source": {"volumeHandle": %q},
			"volumeSnapshotRef": {"namespace": %q, "name": %q, "uid": "1"}}}`, name, driver, volume, namespace(t), name)
	if err := admin.RESTClient().Post().AbsPath(contents).Body([]byte(body)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the doctor of a later test would report it
		must(t, admin.RESTClient().Delete().AbsPath(contents, name).Do(context.Background()).Error())
	})
	return name
}

// TestContentsWithoutANodeAreLabelled by the node that has the volume, and by no other.
func TestContentsWithoutANodeAreLabelled(t *testing.T) {
	here, other := newNode(t, "a"), newNode(t, "b")
	claim := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	handle := pv.Spec.CSI.VolumeHandle
	before := unlabelledContent(t, "before", driver, handle)
	foreign, unknown := unlabelledContent(t, "foreign", "other.io", handle), unlabelledContent(t, "unknown", driver, handle+"-not")
	here.start(t, nil)
	other.start(t, nil)
	after := unlabelledContent(t, "after", driver, handle)
	for _, content := range []string{before, after} {
		soon(t, content+" is labelled", func() bool { return managerOf(t, content) == here.name })
	}
	for _, content := range []string{foreign, unknown} {
		if got := managerOf(t, content); got != "" {
			t.Errorf("%s is labelled with %q", content, got)
		}
	}
	expectAllowed(t, here)
	expectNoWrites(t, other)
}

// managerOf is the node that a content is labelled with; "": none.
func managerOf(t *testing.T, content string) string {
	t.Helper()
	text, err := admin.RESTClient().Get().AbsPath(contents, content).Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		metav1.ObjectMeta `json:"metadata"`
	}
	must(t, json.Unmarshal(text, &o))
	return o.Labels[managedBy]
}

// TestPreProvisionedContentsAreLabelled by the node that has the snapshot, and by no other; with a label they are its
// csi-snapshotter's, and a claim can be restored from them.
func TestPreProvisionedContentsAreLabelled(t *testing.T) {
	here, other := newNode(t, "a"), newNode(t, "b")
	source := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	handle := here.take(t, source, "old")
	before := preProvisioned(t, "before", driver, handle, `{}`)
	foreign := preProvisioned(t, "foreign", "other.io", handle, `{}`)
	unknown := preProvisioned(t, "unknown", driver, handle+"-not", `{}`)
	malformed := preProvisioned(t, "malformed", driver, "snap-0123", `{}`)
	elsewhere := preProvisioned(t, "elsewhere", driver, handle, `{"`+managedBy+`": "elsewhere"}`)
	here.start(t, nil)
	other.start(t, nil)
	after := preProvisioned(t, "after", driver, handle, `{"kept": "too"}`)
	for _, content := range []string{before, after} {
		soon(t, content+" is labelled", func() bool { return managerOf(t, content) == here.name })
	}

	bindSnapshot(t, namespace(t), after, after)
	markReady(t, after, handle)
	claim := copyOf(t, "restored", "snapshot.storage.k8s.io", "VolumeSnapshot", after, "")
	until(t, claim, "made where the snapshot is", selectedIs(here.name))

	time.Sleep(300 * time.Millisecond) // time to do the wrong thing
	for content, want := range map[string]string{foreign: "", unknown: "", malformed: "", elsewhere: "elsewhere"} {
		if got := managerOf(t, content); got != want {
			t.Errorf("%s is labelled with %q, want %q", content, got, want)
		}
	}
	expectAllowed(t, here)
	expectNoWrites(t, other)
}
