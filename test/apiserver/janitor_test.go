//go:build e2e

package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestJanitorReleasesClaimsOfLostNode, and of no other one, after the grace period, and tells each step.
func TestJanitorReleasesClaimsOfLostNode(t *testing.T) {
	lost, out, stays := newNode(t, "lost"), newNode(t, "out"), newNode(t, "stays")
	gone := lost.inUse(t, "gone", optedIn, corev1.PersistentVolumeReclaimDelete)
	retained := lost.inUse(t, "retained", optedIn, corev1.PersistentVolumeReclaimRetain)
	tainted := out.inUse(t, "tainted", optedIn, corev1.PersistentVolumeReclaimDelete)
	other := stays.inUse(t, "other", optedIn, corev1.PersistentVolumeReclaimDelete)
	plain := lost.inUse(t, "plain", "thin", corev1.PersistentVolumeReclaimDelete)
	pod := waitingPod(t, gone, "")
	stuck := waitingPod(t, tainted, out.name)
	playVolumeController(t, gone, retained, tainted, other, plain)
	startJanitor(t, "a", 0)

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
	untilGone(t, "the waiting pod", func() error {
		_, err := admin.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err
	})
	untilGone(t, "the volume", volumeOf(t, gone))
	untilGone(t, "the retained volume's claim", claimOf(t, retained))
	untilGone(t, "the pod on the node out of service", func() error {
		_, err := admin.CoreV1().Pods(stuck.Namespace).Get(t.Context(), stuck.Name, metav1.GetOptions{})
		return err
	})
	untilGone(t, "the claim of the node out of service", claimOf(t, tainted))
	untilGone(t, "its volume", volumeOf(t, tainted))
	eventOn(t, gone.Namespace, gone.Name, "ClaimDeleted")
	eventOn(t, tainted.Namespace, tainted.Name, "PodDeleted")
	eventOn(t, "default", gone.Spec.VolumeName, "PersistentVolumeDeleted")
	eventOn(t, "default", retained.Spec.VolumeName, "VolumeAbandoned")
	if pv := expectVolumeKept(t, retained); pv.Annotations["nodelvm.io/abandoned-since"] == "" {
		t.Errorf("the retained volume has the annotations %v", pv.Annotations)
	}
	expectKept(t, other)
	expectKept(t, plain)
}

// TestJanitorIgnoresStaleLossAnnotation: a PersistentVolume that bears a note of years ago when its node is already gone, as a
// restore tool makes it, has its whole grace period.
func TestJanitorIgnoresStaleLossAnnotation(t *testing.T) {
	lost := newNode(t, "lost")
	claim := lost.inUse(t, "data", optedIn, corev1.PersistentVolumeReclaimDelete)
	patchVolume(t, claim.Spec.VolumeName, "", `{"metadata": {"annotations": {"nodelvm.io/lost-since": "2020-01-02T03:04:05Z"}}}`)
	playVolumeController(t, claim)
	lost.remove(t)
	from := time.Now()
	startJanitor(t, "a", 0)
	if why := eventOn(t, claim.Namespace, claim.Name, "VolumeLost"); strings.Contains(why, "2020") {
		t.Errorf("the event says %q", why)
	}
	expectKept(t, claim)
	if pv := expectVolumeKept(t, claim); strings.HasPrefix(pv.Annotations["nodelvm.io/lost-since"], "2020") {
		t.Error("the old note is kept")
	}
	untilGone(t, "the claim", claimOf(t, claim))
	if took := time.Since(from); took < grace-time.Second { // an annotation holds whole seconds
		t.Errorf("the claim was deleted after %s", took)
	}
}

// TestJanitorKeepsClaimsInDoubt what may come back, what belongs to another driver, and what is in use.
func TestJanitorKeepsClaimsInDoubt(t *testing.T) {
	silent, back, lost, runs := newNode(t, "silent"), newNode(t, "back"), newNode(t, "lost"), newNode(t, "runs")
	unreachable := silent.inUse(t, "unreachable", optedIn, corev1.PersistentVolumeReclaimDelete)
	returning := back.inUse(t, "returning", optedIn, corev1.PersistentVolumeReclaimDelete)
	used := lost.inUse(t, "used", optedIn, corev1.PersistentVolumeReclaimDelete)
	foreign := lost.inUse(t, "foreign", optedIn, corev1.PersistentVolumeReclaimDelete)
	replaceDriver(t, foreign)
	waitingPod(t, used, runs.name)
	playVolumeController(t, unreachable, returning, used)
	startJanitor(t, "a", 0)

	taintNode(t, silent.name, corev1.TaintNodeUnreachable)
	back.remove(t)
	lost.remove(t)
	eventOn(t, returning.Namespace, returning.Name, "VolumeLost")
	if _, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: back.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
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

// TestJanitorKeepsDataOfReturningNode while its claim is being deleted, whatever the reclaim policy: the node's
// csi-provisioner would remove the volume.
func TestJanitorKeepsDataOfReturningNode(t *testing.T) {
	back, stays := newNode(t, "back"), newNode(t, "stays")
	claim := back.inUse(t, "data", optedIn, corev1.PersistentVolumeReclaimDelete)
	begun := stays.inUse(t, "begun", optedIn, corev1.PersistentVolumeReclaimDelete)
	patchVolume(t, begun.Spec.VolumeName, "", `{"metadata": {"annotations": {"nodelvm.io/original-reclaim-policy": "Delete"}}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}}`)
	startJanitor(t, "a", 0)
	back.remove(t)
	eventOn(t, claim.Namespace, claim.Name, "ClaimDeleted") // no controller removes its protection yet, so the deletion waits
	if _, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: back.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventOn(t, "default", claim.Spec.VolumeName, "VolumeAbandoned")
	playVolumeController(t, claim, begun)
	untilGone(t, "the claim", claimOf(t, claim))
	time.Sleep(grace) // time to do the wrong thing
	pv := expectVolumeKept(t, claim)
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || pv.Annotations["nodelvm.io/abandoned-since"] == "" ||
		pv.Annotations["nodelvm.io/lost-since"] != "" {
		t.Errorf("its policy is %s, its annotations %v", pv.Spec.PersistentVolumeReclaimPolicy, pv.Annotations)
	}
	expectKept(t, begun) // a janitor was cut off before it deleted this one
	if pv := expectVolumeKept(t, begun); pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || pv.Annotations["nodelvm.io/original-reclaim-policy"] != "" {
		t.Errorf("what was not released has the policy %s and the annotations %v", pv.Spec.PersistentVolumeReclaimPolicy, pv.Annotations)
	}
}

// TestJanitorRemovesVolumesOfDeletedClaims: without any annotation, what only a removed node would remove; but not while the
// node is merely out of service.
func TestJanitorRemovesVolumesOfDeletedClaims(t *testing.T) {
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
		if err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		untilGone(t, "the claim", claimOf(t, claim))
	}
	startJanitor(t, "a", 0)
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

// TestJanitorResumesAfterKill kills it after each of its writes; the next one goes on, and when the loss was noted stays.
func TestJanitorResumesAfterKill(t *testing.T) {
	lost := newNode(t, "lost")
	claim := lost.inUse(t, "data", optedIn, corev1.PersistentVolumeReclaimDelete)
	waitingPod(t, claim, "")
	playVolumeController(t, claim)
	lost.remove(t)
	marks := map[string]bool{}
	for cuts := 0; ; cuts++ {
		if apierrors.IsNotFound(volumeOf(t, claim)()) {
			if cuts < 4 { // mark, claim, volume, finalizer; the pod may go with its claim
				t.Errorf("all was done in %d writes", cuts)
			}
			break
		}
		if cuts > 8 {
			t.Fatal("it does not come to an end")
		}
		j := startJanitor(t, fmt.Sprintf("cut-%d", cuts), 1)
		// The volume controller may remove the volume only now: then nothing is left to write.
		done := func() bool { return j.writes.Load() > 0 || apierrors.IsNotFound(volumeOf(t, claim)()) }
		for deadline := time.Now().Add(wait.Limit(30 * time.Second)); !done(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("janitor %d does nothing", cuts)
			}
		}
		j.stop()
		if pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{}); err == nil {
			marks[pv.Annotations["nodelvm.io/lost-since"]] = true
		}
	}
	if len(marks) != 1 {
		t.Errorf("the loss was noted at different times: %v", marks)
	}
	untilGone(t, "the claim", claimOf(t, claim))
}

// TestJanitorHoldsLease: the second one waits for the lease, and takes it over when the first ends.
func TestJanitorHoldsLease(t *testing.T) {
	first, second := newNode(t, "first"), newNode(t, "second")
	one := first.inUse(t, "one", "thin", corev1.PersistentVolumeReclaimDelete)
	two := second.inUse(t, "two", "thin", corev1.PersistentVolumeReclaimDelete)
	a := startJanitor(t, "a", 0)
	first.remove(t)
	eventOn(t, one.Namespace, one.Name, "VolumeLost")
	b := startJanitor(t, "b", 0)
	time.Sleep(6 * time.Second) // longer than the lease lasts
	if b.writes.Load() > 0 {
		t.Errorf("both act: %d writes", b.writes.Load())
	}
	a.stop()
	second.remove(t)
	eventOn(t, two.Namespace, two.Name, "VolumeLost")
	if b.writes.Load() == 0 {
		t.Error("the second one did nothing")
	}
}

// TestJanitorReleasesSnapshots: the janitor reports a lost snapshot, deletes one that its user deleted, and deletes one whose class says
// release.
func TestJanitorReleasesSnapshots(t *testing.T) {
	lost := newNode(t, "lost")
	claim := lost.inUse(t, "data", "thin", corev1.PersistentVolumeReclaimDelete)
	makeReleaseSnapshotClass(t, "snap-release")
	for name, class := range map[string]string{"kept": "snap-keep", "deleted": "snap-keep", "released": "snap-release"} {
		makeSnapshot(t, claim.Namespace, name, class, lost.name, "janitor-"+name)
	}
	lost.remove(t)
	remove := func(path ...string) error {
		return admin.RESTClient().Delete().AbsPath(path...).Do(t.Context()).Error()
	}
	there := func(path ...string) func() error {
		return func() error { return admin.RESTClient().Get().AbsPath(path...).Do(t.Context()).Error() }
	}
	if err := remove(contents, "janitor-deleted"); err != nil {
		t.Fatal(err)
	}
	startJanitor(t, "a", 0)
	eventOn(t, claim.Namespace, "kept", "SnapshotLost")
	untilGone(t, "the released snapshot", there(snapshots, "namespaces", claim.Namespace, "volumesnapshots", "released"))
	eventOn(t, claim.Namespace, "released", "SnapshotDeleted")
	untilGone(t, "the deleted content", there(contents, "janitor-deleted"))
	if err := remove(contents, "janitor-released"); err != nil { // as the snapshot controller does
		t.Fatal(err)
	}
	untilGone(t, "the released content", there(contents, "janitor-released"))
	for _, path := range [][]string{{contents, "janitor-kept"}, {snapshots, "namespaces", claim.Namespace, "volumesnapshots", "kept"}} {
		if err := there(path...)(); err != nil {
			t.Errorf("%v is not kept: %v", path, err)
		}
	}
	_ = remove(contents, "janitor-kept") // what it is held by is for no later test
}
