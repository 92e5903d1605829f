package attributes

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/kube/kubetest"
)

const (
	isPending    = corev1.PersistentVolumeClaimModifyVolumePending
	isInProgress = corev1.PersistentVolumeClaimModifyVolumeInProgress
	isImpossible = corev1.PersistentVolumeClaimModifyVolumeInfeasible
)

// asking returns a bound claim that names a class, whose volume has another one, and whose status records a change.
func asking(asked, current string, state corev1.PersistentVolumeClaimModifyVolumeStatus, target string, conditions ...corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaim {
	c := kubetest.Claim("data", "late", "pvc-data")
	if asked != "" {
		c.Spec.VolumeAttributesClassName = &asked
	}
	if current != "" {
		c.Status.CurrentVolumeAttributesClassName = &current
	}
	if state != "" {
		c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{Status: state, TargetVolumeAttributesClassName: target}
	}
	for _, kind := range conditions {
		c.Status.Conditions = append(c.Status.Conditions, corev1.PersistentVolumeClaimCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	return c
}

// TestPlan has a row for each decision of external-resizer 2.3 (pkg/modifycontroller/modify_volume.go, modify).
func TestPlan(t *testing.T) {
	const modifying = corev1.PersistentVolumeClaimVolumeModifyingVolume
	deleted, unbound, lost := asking("gold", "", "", ""), asking("gold", "", "", ""), asking("gold", "", "", "")
	deleted.DeletionTimestamp = &metav1.Time{}
	unbound.Spec.VolumeName, unbound.Status.Phase = "", corev1.ClaimPending
	lost.Status.Phase = corev1.ClaimLost
	for _, test := range []struct {
		name      string
		claim     *corev1.PersistentVolumeClaim
		uncertain bool
		next      step
		target    string
	}{
		{"no class", asking("", "", "", ""), true, nothing, ""},
		{"it has its class", asking("gold", "gold", "", ""), true, nothing, ""},
		{"deleted", deleted, true, nothing, ""},
		{"not bound", unbound, true, nothing, ""},
		{"its volume is lost", lost, true, nothing, ""},
		{"the first class", asking("gold", "", "", ""), false, begin, "gold"},
		{"another class", asking("gold", "silver", "", ""), false, begin, "gold"},
		{"pending", asking("gold", "silver", isPending, ""), false, begin, "gold"},
		{"pending, and another one now", asking("bronze", "silver", isPending, "gold"), false, begin, "bronze"},
		{"pending, and back", asking("silver", "silver", isPending, ""), false, begin, "silver"},
		{"infeasible", asking("gold", "silver", isImpossible, "gold"), false, begin, "gold"},
		{"infeasible, and another one now", asking("bronze", "silver", isImpossible, "gold"), false, begin, "bronze"},
		{"infeasible, and cancelled by the old class", asking("silver", "silver", isImpossible, "gold"), true, begin, "silver"},
		{"in progress, with an unknown result", asking("gold", "silver", isInProgress, "gold"), true, proceed, "gold"},
		{"in progress, with an unknown result, and another one now", asking("bronze", "silver", isInProgress, "gold"), true, proceed, "gold"},
		{"in progress, with an unknown result, and back", asking("silver", "silver", isInProgress, "gold"), true, proceed, "gold"},
		{"failed for certain", asking("gold", "silver", isInProgress, "gold"), false, begin, "gold"},
		{"failed for certain, and another one now", asking("bronze", "silver", isInProgress, "gold"), false, begin, "bronze"},
		{"failed for certain, and cancelled by the old class", asking("silver", "silver", isInProgress, "gold"), false, begin, "silver"},
		{"in progress, and no class now", asking("", "", isInProgress, "gold"), false, proceed, "gold"},
		{"pending, and no class now", asking("", "", isPending, ""), true, nothing, ""},
		{"pending after a failure, and no class now", asking("", "", isPending, "gold", modifying), true, cancel, ""},
		{"infeasible, and no class now", asking("", "", isImpossible, "gold", modifying), true, cancel, ""},
		{"cancelled", asking("", "", isImpossible, "gold"), true, nothing, ""},
	} {
		next, target := planFor(test.claim, test.uncertain)
		if next != test.next || target != test.target {
			t.Errorf("%s: step %d to %q, want %d to %q", test.name, next, target, test.next, test.target)
		}
		if Wanted(test.claim) != (test.next != nothing) {
			t.Errorf("%s: wanted is %v", test.name, Wanted(test.claim))
		}
	}
}

// TestConditions: a change keeps the conditions of others, and the time of a transition.
func TestConditions(t *testing.T) {
	before := metav1.Unix(1, 0)
	c := asking("gold", "", "", "", "Resizing", corev1.PersistentVolumeClaimVolumeModifyingVolume, corev1.PersistentVolumeClaimVolumeModifyVolumeError)
	for i := range c.Status.Conditions {
		c.Status.Conditions[i].LastTransitionTime = before
	}
	begun := begunPatch(c, "gold").Status["conditions"].([]corev1.PersistentVolumeClaimCondition)
	if len(begun) != 3 || begun[0].Type != "Resizing" || begun[1].LastTransitionTime != before || begun[1].Message == "" {
		t.Errorf("begun: %+v", begun)
	}
	if c.Status.Conditions[1].Message != "" {
		t.Error("the claim has changed")
	}
	done := donePatch(c, "gold").Status["conditions"].([]corev1.PersistentVolumeClaimCondition)
	if len(done) != 1 || done[0].Type != "Resizing" {
		t.Errorf("done: %+v", done)
	}
	c.Status.Conditions = c.Status.Conditions[1:2]
	if cancelled := cancelledPatch(c).Status["conditions"].([]corev1.PersistentVolumeClaimCondition); len(cancelled) != 0 || cancelled == nil {
		t.Errorf("cancelled: %+v", cancelled)
	}
}
