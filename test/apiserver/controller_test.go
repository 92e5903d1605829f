//go:build e2e

package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

// TestControllerReleasesClaimsOfLostNode, and of no other one, after the grace period, and tells each step.
func TestControllerReleasesClaimsOfLostNode(t *testing.T) {
	lost, out, stays := newNode(t, "lost"), newNode(t, "out"), newNode(t, "stays")
	gone := lost.inUse(t, "gone", optedIn, corev1.PersistentVolumeReclaimDelete)
	retained := lost.inUse(t, "retained", optedIn, corev1.PersistentVolumeReclaimRetain)
	tainted := out.inUse(t, "tainted", optedIn, corev1.PersistentVolumeReclaimDelete)
	other := stays.inUse(t, "other", optedIn, corev1.PersistentVolumeReclaimDelete)
	plain := lost.inUse(t, "plain", "thin", corev1.PersistentVolumeReclaimDelete)
	pod := waitingPod(t, gone, "")
	stuck := waitingPod(t, tainted, out.name)
	playVolumeController(t, gone, retained, tainted, other, plain)
	startController(t, "a")

	lost.remove(t)
	taintNode(t, out.name, corev1.TaintNodeOutOfService)
	from := time.Now()
	for _, claim := range []*corev1.PersistentVolumeClaim{gone, retained, tainted, plain} {
		why := eventOn(t, claim.Namespace, claim.Name, "VolumeLost")
		if !strings.Contains(why, api.AnnotationOnNodeLoss) || !strings.Contains(why, claim.Spec.VolumeName) ||
			strings.Contains(why, "nodelvm deletes nothing. The data returns with ") != (claim == plain) {
			t.Errorf("claim %s is told %q", claim.Name, why)
		}
		expectKept(t, claim)
	}
	untilGone(t, "the claim", claimOf(t, gone))
	if took := time.Since(from); took < grace-time.Second { // an annotation holds whole seconds
		t.Errorf("the claim was deleted after %s", took)
	}
	untilGone(t, "the waiting pod", podThere(t, pod))
	untilGone(t, "the volume", volumeOf(t, gone))
	untilGone(t, "the retained volume's claim", claimOf(t, retained))
	untilGone(t, "the pod on the node out of service", podThere(t, stuck))
	untilGone(t, "the claim of the node out of service", claimOf(t, tainted))
	untilGone(t, "its volume", volumeOf(t, tainted))
	eventOn(t, gone.Namespace, gone.Name, "ClaimDeleted")
	eventOn(t, tainted.Namespace, tainted.Name, "PodDeleted")
	eventOn(t, "default", gone.Spec.VolumeName, "PersistentVolumeDeleted")
	eventOn(t, "default", retained.Spec.VolumeName, "VolumeAbandoned")
	if pv := expectVolumeKept(t, retained); pv.Annotations["nodelvm.io/abandoned-since"] == "" || pv.Annotations["nodelvm.io/original-reclaim-policy"] != "" {
		t.Errorf("the retained volume has the annotations %v", pv.Annotations)
	}
	expectKept(t, other)
	expectKept(t, plain)
}

// TestControllerKeepsClaimsInDoubt what may come back, what belongs to another driver, and what is in use.
func TestControllerKeepsClaimsInDoubt(t *testing.T) {
	silent, back, lost, runs := newNode(t, "silent"), newNode(t, "back"), newNode(t, "lost"), newNode(t, "runs")
	unreachable := silent.inUse(t, "unreachable", optedIn, corev1.PersistentVolumeReclaimDelete)
	returning := back.inUse(t, "returning", optedIn, corev1.PersistentVolumeReclaimDelete)
	used := lost.inUse(t, "used", optedIn, corev1.PersistentVolumeReclaimDelete)
	foreign := lost.inUse(t, "foreign", optedIn, corev1.PersistentVolumeReclaimDelete)
	replaceDriver(t, foreign)
	waitingPod(t, used, runs.name)
	playVolumeController(t, unreachable, returning, used)
	startController(t, "a")

	taintNode(t, silent.name, corev1.TaintNodeUnreachable)
	back.remove(t)
	lost.remove(t)
	eventOn(t, returning.Namespace, returning.Name, "VolumeLost")
	create(t, admin.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: back.name}})
	eventOn(t, returning.Namespace, returning.Name, "VolumeLostResolved")
	if why := eventOn(t, used.Namespace, used.Name, "VolumeInUse"); !strings.Contains(why, "pod-of-used") || !strings.Contains(why, runs.name) {
		t.Errorf("the event says %q", why)
	}
	time.Sleep(grace) // time to do the wrong thing
	for _, claim := range []*corev1.PersistentVolumeClaim{unreachable, returning, used, foreign} {
		expectKept(t, claim)
	}
	if pv := expectVolumeKept(t, returning); pv.Annotations["nodelvm.io/lost-since"] != "" {
		t.Errorf("a node that is back is still noted as lost: %v", pv.Annotations)
	}
	if pv := expectVolumeKept(t, foreign); pv.Annotations["nodelvm.io/lost-since"] != "" {
		t.Errorf("another driver's volume was annotated: %v", pv.Annotations)
	}
}

// TestControllerKeepsDataOfReturningNode while its claim is being deleted, whatever the reclaim policy: the node's
// csi-provisioner would remove the volume.
func TestControllerKeepsDataOfReturningNode(t *testing.T) {
	back, stays := newNode(t, "back"), newNode(t, "stays")
	claim := back.inUse(t, "data", optedIn, corev1.PersistentVolumeReclaimDelete)
	begun := stays.inUse(t, "begun", optedIn, corev1.PersistentVolumeReclaimDelete)
	patchVolume(t, begun.Spec.VolumeName, "", `{"metadata": {"annotations": {"nodelvm.io/original-reclaim-policy": "Delete"}}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}}`)
	startController(t, "a")
	back.remove(t)
	eventOn(t, claim.Namespace, claim.Name, "ClaimDeleted") // no controller removes its protection yet, so the deletion waits
	create(t, admin.CoreV1().Nodes(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: back.name}})
	eventOn(t, "default", claim.Spec.VolumeName, "VolumeAbandoned")
	playVolumeController(t, claim, begun)
	untilGone(t, "the claim", claimOf(t, claim))
	time.Sleep(grace) // time to do the wrong thing
	pv := expectVolumeKept(t, claim)
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || pv.Annotations["nodelvm.io/abandoned-since"] == "" ||
		pv.Annotations["nodelvm.io/lost-since"] != "" {
		t.Errorf("its policy is %s, its annotations %v", pv.Spec.PersistentVolumeReclaimPolicy, pv.Annotations)
	}
	expectKept(t, begun) // a controller was cut off before it deleted this one
	if pv := expectVolumeKept(t, begun); pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || pv.Annotations["nodelvm.io/original-reclaim-policy"] != "" {
		t.Errorf("what was not released has the policy %s and the annotations %v", pv.Spec.PersistentVolumeReclaimPolicy, pv.Annotations)
	}
}

// TestControllerRemovesVolumesOfDeletedClaims: without any annotation, what only a removed node would remove; but not while the
// node is merely out of service.
func TestControllerRemovesVolumesOfDeletedClaims(t *testing.T) {
	lost, out, stays := newNode(t, "lost"), newNode(t, "out"), newNode(t, "stays")
	deleted := lost.inUse(t, "deleted", "thin", corev1.PersistentVolumeReclaimDelete)
	kept := out.inUse(t, "kept", "thin", corev1.PersistentVolumeReclaimDelete)
	retained := lost.inUse(t, "retained", "thin", corev1.PersistentVolumeReclaimRetain)
	shut := newClaim(t, "shut", func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = out.name })
	stuck := newClaim(t, "stuck", func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = lost.name })
	theirs := newClaim(t, "theirs", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations[selected], c.Spec.StorageClassName = lost.name, new(string)
	})
	fine := newClaim(t, "fine", func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = stays.name })
	playVolumeController(t, deleted, kept, retained)
	lost.remove(t)
	taintNode(t, out.name, corev1.TaintNodeOutOfService)
	for _, claim := range []*corev1.PersistentVolumeClaim{deleted, kept, retained} {
		must(t, admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
		untilGone(t, "the claim", claimOf(t, claim))
	}
	startController(t, "a")
	untilGone(t, "the deleted claim's volume", volumeOf(t, deleted))
	until(t, stuck, "freed", selectedIs(""))
	until(t, shut, "freed, since its node is out of service", selectedIs(""))
	for _, claim := range []*corev1.PersistentVolumeClaim{stuck, shut} {
		eventOn(t, claim.Namespace, claim.Name, "SelectedNodeRemoved")
	}
	time.Sleep(grace) // time to do the wrong thing
	expectVolumeKept(t, kept)
	if pv := expectVolumeKept(t, retained); pv.Annotations["nodelvm.io/abandoned-since"] != "" {
		t.Errorf("a volume that its user gave up is noted as abandoned: %v", pv.Annotations)
	}
	until(t, theirs, "left alone", selectedIs(lost.name))
	until(t, fine, "left alone", selectedIs(stays.name))
}

// TestControllerReleasesSnapshots: nodelvm-controller reports a lost snapshot, deletes one that its user deleted, and deletes one whose class says
// release. A content on the lost node that names a snapshot which is bound to another content does not have that snapshot deleted or told.
func TestControllerReleasesSnapshots(t *testing.T) {
	lost, stays := newNode(t, "lost"), newNode(t, "stays")
	claim := lost.inUse(t, "data", "thin", corev1.PersistentVolumeReclaimDelete)
	makeSnapshotClass(t, "snap-release", fmt.Sprintf(`{%q: "release"}`, api.AnnotationOnNodeLoss))
	for name, class := range map[string]string{"kept": "snap-keep", "deleted": "snap-keep", "released": "snap-release"} {
		makeSnapshot(t, name, class, lost.name, "controller-"+name)
	}
	makeSnapshot(t, "victim", "snap-release", stays.name, "controller-victim")
	var victim metav1.PartialObjectMetadata
	readRaw(t, &victim, snapshotsIn(t), "victim")
	makeContent(t, "victim", string(victim.UID), "snap-release", lost.name, "controller-forged", "a/b")
	lost.remove(t)
	remove := func(content string) {
		must(t, admin.RESTClient().Delete().AbsPath(contents, content).Do(t.Context()).Error())
	}
	remove("controller-deleted")
	startController(t, "a")

	eventOn(t, claim.Namespace, "kept", "SnapshotLost")
	eventOn(t, "default", "controller-forged", "SnapshotMismatch")
	untilGone(t, "the released snapshot", there(t, snapshotsIn(t), "released"))
	eventOn(t, claim.Namespace, "released", "SnapshotDeleted")
	untilGone(t, "the deleted content", there(t, contents, "controller-deleted"))
	remove("controller-released") // as the snapshot controller does
	untilGone(t, "the released content", there(t, contents, "controller-released"))
	for _, path := range [][]string{{contents, "controller-kept"}, {snapshotsIn(t), "kept"}, {contents, "controller-victim"}, {contents, "controller-forged"}, {snapshotsIn(t), "victim"}} {
		if err := there(t, path...)(); err != nil {
			t.Errorf("%v is not kept: %v", path, err)
		}
	}
	if events := eventsOn(t, claim.Namespace, "victim"); len(events) > 0 {
		t.Errorf("the snapshot is told of a content that is not its own: %+v", events)
	}
}
