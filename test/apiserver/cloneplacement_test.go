//go:build e2e

package apiserver

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// snapshotOf takes a snapshot of a bound claim's volume, and makes the content that the snapshot controller makes for it.
func (n *node) snapshotOf(t *testing.T, claim *corev1.PersistentVolumeClaim, name string) (content string, handle string) {
	t.Helper()
	content = "snapcontent-" + string(claim.UID)
	makeSnapshot(t, name, "snap-keep", n.name, content)
	var snapshot metav1.PartialObjectMetadata
	readRaw(t, &snapshot, snapshotsIn(t), name)
	return content, n.take(t, claim, api.PrefixSnapshot+string(snapshot.UID))
}

// take takes a snapshot of a bound claim's volume, for which the cluster has no object.
func (n *node) take(t *testing.T, claim *corev1.PersistentVolumeClaim, name string) (handle string) {
	t.Helper()
	_, volume := boundVolume(t, claim)
	snapshot, err := n.host.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: name, Source: volume})
	must(t, err)
	return snapshot.ID.String()
}

// copyOf makes an unbound claim with a source; node is the one that the scheduler has selected, "" for none.
func copyOf(t *testing.T, name, group, kind, source, node string) *corev1.PersistentVolumeClaim {
	t.Helper()
	return newClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: kind, Name: source}
		if group != "" {
			c.Spec.DataSourceRef.APIGroup = &group
		}
		if node != "" {
			c.Annotations[selected] = node
		}
	})
}

func selectedIs(node string) func(*corev1.PersistentVolumeClaim) bool {
	return func(c *corev1.PersistentVolumeClaim) bool { return c.Annotations[selected] == node }
}

func TestCloneIsPlacedOnNodeOfSource(t *testing.T) {
	here, other := newNode(t, "a"), newNode(t, "b")
	here.start(t)
	other.start(t)
	source := here.bound(t, "data", corev1.PersistentVolumeFilesystem)

	unscheduled := copyOf(t, "clone", "", "PersistentVolumeClaim", "data", "")
	elsewhere := copyOf(t, "clone-elsewhere", "", "PersistentVolumeClaim", "data", other.name)
	early := copyOf(t, "restore-early", snapshotGroup, "VolumeSnapshot", "snap", other.name)
	until(t, unscheduled, "selected without a pod", selectedIs(here.name))
	until(t, elsewhere, "selected in place of another", selectedIs(here.name))
	if why := eventOn(t, elsewhere.Namespace, elsewhere.Name, "SourceNodeSelected"); !strings.Contains(why, other.name) || !strings.Contains(why, here.name) {
		t.Errorf("the event says %q", why)
	}

	content, handle := here.snapshotOf(t, source, "snap")
	bait := copyOf(t, "restore-bait", snapshotGroup, "VolumeSnapshot", "snap", "")
	decoy := other.take(t, other.bound(t, "decoy", corev1.PersistentVolumeFilesystem), "decoy")
	var snapshot metav1.PartialObjectMetadata
	readRaw(t, &snapshot, snapshotsIn(t), "snap")
	makeContent(t, "snap", string(snapshot.UID), "snap-keep", other.name, "forged-"+content, "a/b") // the snapshot does not name it
	markReady(t, "forged-"+content, decoy)
	time.Sleep(500 * time.Millisecond) // time to do the wrong thing
	until(t, bait, "left alone by a node with a content that the snapshot does not name", selectedIs(""))
	until(t, early, "left alone as long as the snapshot is not ready", selectedIs(other.name))
	markReady(t, content, handle)
	until(t, early, "selected when the snapshot is ready", selectedIs(here.name))
	until(t, bait, "selected where the snapshot is", selectedIs(here.name))
	late := copyOf(t, "restore-late", snapshotGroup, "VolumeSnapshot", "snap", "")
	until(t, late, "selected without a pod", selectedIs(here.name))

	// The provisioner of a node gives a claim back that it cannot serve.
	patchClaim(t, late, "", `{"metadata": {"annotations": {"`+selected+`": null}}}`)
	until(t, late, "selected again", selectedIs(here.name))

	expectAllowed(t, here)
	expectNoWrites(t, other)
}
