//go:build e2e

package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

const contents = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"

// snapshotOf takes a snapshot of a bound claim's volume, and makes the content that the snapshot controller makes for it.
func (n *node) snapshotOf(t *testing.T, claim *corev1.PersistentVolumeClaim, name string) (content string, handle string) {
	t.Helper()
	content = "snapcontent-" + string(claim.UID)
	makeSnapshot(t, claim.Namespace, name, "snap-keep", n.name, content)
	var snapshot metav1.PartialObjectMetadata
	text, err := admin.RESTClient().Get().AbsPath(snapshots, "namespaces", claim.Namespace, "volumesnapshots", name).Do(t.Context()).Raw()
	if err != nil || json.Unmarshal(text, &snapshot) != nil {
		t.Fatal(err)
	}
	return content, n.take(t, claim, api.PrefixSnapshot+string(snapshot.UID))
}

// take takes a snapshot of a bound claim's volume, for which the cluster has no object.
func (n *node) take(t *testing.T, claim *corev1.PersistentVolumeClaim, name string) (handle string) {
	t.Helper()
	pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	volume, err := lvm.ParseID(pv.Spec.CSI.VolumeHandle)
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := n.host.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: name, Source: volume})
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.ID.String()
}

// markReady does what csi-snapshotter does when the snapshot is there.
func markReady(t *testing.T, content, handle string) {
	t.Helper()
	err := admin.RESTClient().Patch("application/merge-patch+json").AbsPath(contents, content, "status").
		Body(fmt.Appendf(nil, `{"status": {"readyToUse": true, "snapshotHandle": %q}}`, handle)).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
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
	here.start(t, nil)
	other.start(t, nil)
	source := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	const group = "snapshot.storage.k8s.io"

	unscheduled := copyOf(t, "clone", "", "PersistentVolumeClaim", "data", "")
	elsewhere := copyOf(t, "clone-elsewhere", "", "PersistentVolumeClaim", "data", other.name)
	early := copyOf(t, "restore-early", group, "VolumeSnapshot", "snap", other.name)
	until(t, unscheduled, "selected without a pod", selectedIs(here.name))
	until(t, elsewhere, "selected in place of another", selectedIs(here.name))
	if why := eventOn(t, elsewhere.Namespace, elsewhere.Name, "SourceNodeSelected"); !strings.Contains(why, other.name) || !strings.Contains(why, here.name) {
		t.Errorf("the event says %q", why)
	}

	content, handle := here.snapshotOf(t, source, "snap")
	bait := copyOf(t, "restore-bait", group, "VolumeSnapshot", "snap", "")
	decoy := other.take(t, other.bound(t, "decoy", corev1.PersistentVolumeFilesystem), "decoy")
	makeContent(t, source.Namespace, "snap", "snap-keep", other.name, "forged-"+content) // the snapshot does not name it
	markReady(t, "forged-"+content, decoy)
	time.Sleep(500 * time.Millisecond) // time to do the wrong thing
	until(t, bait, "left alone by a node with a content that the snapshot does not name", selectedIs(""))
	until(t, early, "left alone as long as the snapshot is not ready", selectedIs(other.name))
	markReady(t, content, handle)
	until(t, early, "selected when the snapshot is ready", selectedIs(here.name))
	until(t, bait, "selected where the snapshot is", selectedIs(here.name))
	late := copyOf(t, "restore-late", group, "VolumeSnapshot", "snap", "")
	until(t, late, "selected without a pod", selectedIs(here.name))

	// The provisioner of a node gives a claim back that it cannot serve.
	patchClaim(t, late, "", `{"metadata": {"annotations": {"`+selected+`": null}}}`)
	until(t, late, "selected again", selectedIs(here.name))

	expectAllowed(t, here)
	expectNoWrites(t, other)
}

// TestCloneIsReturnedToTheScheduler: the node of the source is silent. Another node, which the scheduler selected for the clone, returns it,
// because csi-provisioner there never calls the driver.
func TestCloneIsReturnedToTheScheduler(t *testing.T) {
	silent, other := newNode(t, "a"), newNode(t, "b")
	other.start(t, nil)
	silent.bound(t, "data", corev1.PersistentVolumeFilesystem)
	claim := copyOf(t, "clone", "", "PersistentVolumeClaim", "data", other.name)
	until(t, claim, "returned", selectedIs(""))
	if why := eventOn(t, claim.Namespace, claim.Name, "SelectedNodeRemoved"); !strings.Contains(why, other.name) || !strings.Contains(why, silent.name) {
		t.Errorf("the event says %q", why)
	}
	expectAllowed(t, other)
}

func TestCloneCreatedBeforeSourceIsBound(t *testing.T) {
	here := newNode(t, "a")
	here.start(t, nil)
	claim := copyOf(t, "clone", "", "PersistentVolumeClaim", "data", "")
	time.Sleep(300 * time.Millisecond) // it is seen before its source is
	here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	until(t, claim, "selected", selectedIs(here.name))
	expectAllowed(t, here)
}

func TestForeignSourcesAreIgnored(t *testing.T) {
	here := newNode(t, "a")
	here.start(t, nil)
	here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	var alone []*corev1.PersistentVolumeClaim
	alone = append(alone,
		copyOf(t, "populated", "example.com", "PersistentVolumeClaim", "data", ""),
		copyOf(t, "missing", "", "PersistentVolumeClaim", "nothing", ""),
		copyOf(t, "missing-snapshot", "snapshot.storage.k8s.io", "VolumeSnapshot", "nothing", ""),
		newClaim(t, "plain", func(*corev1.PersistentVolumeClaim) {}),
	)
	last := copyOf(t, "clone", "", "PersistentVolumeClaim", "data", "")
	until(t, last, "selected", selectedIs(here.name)) // so the others were seen too
	time.Sleep(300 * time.Millisecond)
	for _, claim := range alone {
		until(t, claim, "left alone", selectedIs(""))
	}
}

// TestSnapshotIsRestoredOnItsNode: another node's token can write this node's snapshot into a content that is labelled with
// that node. A claim with it as its source becomes no copy here, though this node was selected for it.
func TestSnapshotIsRestoredOnItsNode(t *testing.T) {
	here, thief := newNode(t, "a"), newNode(t, "b")
	agent := here.start(t, nil)
	const group = "snapshot.storage.k8s.io"
	source := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	content, handle := here.snapshotOf(t, source, "snap")
	markReady(t, content, handle)
	forged := "forged-" + content
	makeSnapshot(t, source.Namespace, "bait", "snap-keep", thief.name, forged)
	markReady(t, forged, handle)

	of, err := lvm.ParseID(handle)
	if err != nil {
		t.Fatal(err)
	}
	may := func(claim *corev1.PersistentVolumeClaim) error {
		return agent.MayRestore(t.Context(), claim.Namespace, claim.Name, string(claim.UID), of)
	}
	own := copyOf(t, "restore", group, "VolumeSnapshot", "snap", here.name)
	stolen := copyOf(t, "stolen", group, "VolumeSnapshot", "bait", here.name)
	soon(t, "a copy of the snapshot's own VolumeSnapshot", func() bool { return may(own) == nil })
	soon(t, "the other claim is known", func() bool { return strings.Contains(fmt.Sprint(may(stolen)), forged) })
	if err := may(stolen); lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), "names another node") {
		t.Errorf("got %v", err)
	}
	// The token of this node can label it with this node, but the driver did not take the snapshot for it.
	relabelled := "relabelled-" + content
	makeSnapshot(t, source.Namespace, "lure", "snap-keep", here.name, relabelled)
	markReady(t, relabelled, handle)
	lured := copyOf(t, "lured", group, "VolumeSnapshot", "lure", here.name)
	soon(t, "a snapshot of another VolumeSnapshot is refused", func() bool { return lvm.KindOf(may(lured)) == lvm.KindInvalid })

	clone := copyOf(t, "clone", "", "PersistentVolumeClaim", "data", here.name)
	soon(t, "a clone is no copy of a snapshot", func() bool { return lvm.KindOf(may(clone)) == lvm.KindInvalid })
	expectNoneRefused(t, here)
}
