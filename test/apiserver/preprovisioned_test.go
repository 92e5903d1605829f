//go:build e2e

package apiserver

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// preProvisioned makes a content for a snapshot that is there already; labels are JSON.
func preProvisioned(t *testing.T, name, driver, handle, labels string) string {
	t.Helper()
	return newContent(t, name, labels, `"driver": %q, "deletionPolicy": "Retain", "source": {"snapshotHandle": %q}`, driver, handle)
}

// unlabelledContent makes the content of a new snapshot as a snapshot controller without --enable-distributed-snapshotting does.
func unlabelledContent(t *testing.T, name, driver, volume string) string {
	t.Helper()
	return newContent(t, name, "{}", `"driver": %q, "deletionPolicy": "Delete", "source": {"volumeHandle": %q}`, driver, volume)
}

func newContent(t *testing.T, name, labels, spec string, args ...any) string {
	t.Helper()
	name = namespace(t) + "-" + name
	post(t, contents, "VolumeSnapshotContent", name, labels, `"spec": {`+spec+`, "volumeSnapshotRef": {"namespace": %q, "name": %q}}`, append(args, namespace(t), name)...)
	t.Cleanup(func() { removeRaw(t, contents, name) }) // the doctor of a later test would report it
	return name
}

// managerOf is the node that a content is labelled with; "": none.
func managerOf(t *testing.T, content string) string {
	t.Helper()
	var o metav1.PartialObjectMetadata
	readRaw(t, &o, contents, content)
	return o.Labels[managedBy]
}

// TestContentsAreLabelled by the node that has the snapshot or its volume, and by no other; with a label they are its csi-snapshotter's, and
// a claim can be restored from them.
func TestContentsAreLabelled(t *testing.T) {
	here, other := newNode(t, "a"), newNode(t, "b")
	source := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	_, volume := boundVolume(t, source)
	handle := here.take(t, source, "old")
	before, dynamic := preProvisioned(t, "before", driver, handle, `{}`), unlabelledContent(t, "dynamic", driver, volume.String())
	foreign := preProvisioned(t, "foreign", "other.io", handle, `{}`)
	unknown := preProvisioned(t, "unknown", driver, handle+"-not", `{}`)
	elsewhere := preProvisioned(t, "elsewhere", driver, handle, `{"`+managedBy+`": "elsewhere"}`)
	here.start(t)
	other.start(t)
	after := preProvisioned(t, "after", driver, handle, `{"kept": "too"}`)
	for _, content := range []string{before, dynamic, after} {
		soon(t, content+" is labelled", func() bool { return managerOf(t, content) == here.name })
	}
	made := post(t, snapshotsIn(t), "VolumeSnapshot", after, "{}", `"spec": {"source": {"volumeSnapshotContentName": %q}}`, after)
	patchRaw(t, []string{contents, after}, `{"spec": {"volumeSnapshotRef": {"uid": %q}}}`, made.UID) // as the snapshot controller binds them
	patchRaw(t, []string{snapshotsIn(t), after, "status"}, `{"status": {"boundVolumeSnapshotContentName": %q}}`, after)
	markReady(t, after, handle)
	claim := copyOf(t, "restored", snapshotGroup, "VolumeSnapshot", after, "")
	until(t, claim, "made where the snapshot is", selectedIs(here.name))
	for content, want := range map[string]string{foreign: "", unknown: "", elsewhere: "elsewhere"} {
		if got := managerOf(t, content); got != want {
			t.Errorf("%s is labelled with %q, want %q", content, got, want)
		}
	}
	expectAllowed(t, here)
	expectNoWrites(t, other)
}
