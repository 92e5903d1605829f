package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// growing returns a bound claim of 1 GiB that requests another size, in some state of an expansion.
func growing(asked, allocated string, state corev1.ClaimResourceStatus, conditions ...corev1.PersistentVolumeClaimConditionType) *corev1.PersistentVolumeClaim {
	c := kubetest.Claim("data", "thin", "pv-1")
	quantity := func(size string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	}
	c.Spec.Resources.Requests = quantity(asked)
	c.Status.Capacity = quantity("1Gi")
	if allocated != "" {
		c.Status.AllocatedResources = quantity(allocated)
	}
	if state != "" {
		c.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: state}
	}
	for _, kind := range conditions {
		c.Status.Conditions = append(c.Status.Conditions, corev1.PersistentVolumeClaimCondition{Type: kind, Status: corev1.ConditionTrue})
	}
	return c
}

func TestResizeTarget(t *testing.T) {
	const (
		progress       = corev1.PersistentVolumeClaimControllerResizeInProgress
		infeasible     = corev1.PersistentVolumeClaimControllerResizeInfeasible
		pending        = corev1.PersistentVolumeClaimNodeResizePending
		nodeProgress   = corev1.PersistentVolumeClaimNodeResizeInProgress
		nodeInfeasible = corev1.PersistentVolumeClaimNodeResizeInfeasible
		failed         = corev1.PersistentVolumeClaimControllerResizeError
	)
	for _, test := range []struct {
		name  string
		claim *corev1.PersistentVolumeClaim
		want  string // "": the kubelet's part
	}{
		{"asked for the first time", growing("2Gi", "", ""), "2Gi"},
		{"asked again after an expansion", growing("3Gi", "2Gi", ""), "3Gi"},
		{"cut off", growing("2Gi", "2Gi", progress), "2Gi"},
		{"cut off, and lowered meanwhile", growing("2Gi", "9Gi", progress), "9Gi"},
		{"failed for certain, and lowered", growing("2Gi", "9Gi", progress, failed), "2Gi"},
		{"infeasible, and not lowered", growing("9Gi", "9Gi", infeasible, failed), "9Gi"},
		{"infeasible, and lowered", growing("2Gi", "9Gi", infeasible, failed), "2Gi"},
		{"the kubelet has not begun", growing("2Gi", "2Gi", pending), ""},
		{"the kubelet is at work, and more is asked for", growing("3Gi", "2Gi", nodeProgress), ""},
		{"the kubelet has given up", growing("3Gi", "2Gi", nodeInfeasible), "2Gi"},
	} {
		target, ok := resizeTarget(test.claim)
		if got := target.String(); ok != (test.want != "") || ok && got != test.want {
			t.Errorf("%s: got %s, %v; want %q", test.name, got, ok, test.want)
		}
	}
}

func TestExpansionKeepsOtherClaimConditions(t *testing.T) {
	c := growing("2Gi", "", "", "Unused", corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimNodeResizeError)
	for name, p := range map[string]kubeclient.Patch{
		"begun":  begunPatch(c, resource.MustParse("2Gi")),
		"failed": failedPatch(c, true, "why"),
		"grown":  grownPatch(c, resource.MustParse("2Gi"), false),
		"block":  grownPatch(c, resource.MustParse("2Gi"), true),
	} {
		list := p.Status["conditions"].([]corev1.PersistentVolumeClaimCondition)
		if want := map[bool]int{true: 1, false: 2}[name == "block"]; len(list) != want || list[0].Type != "Unused" {
			t.Errorf("%s: the conditions are %+v", name, list)
		}
	}
}

func TestRecordedExpansionIsNotWrittenAgain(t *testing.T) {
	c := growing("9Gi", "9Gi", corev1.PersistentVolumeClaimControllerResizeInfeasible)
	if saysFailed(c, true, "no room") {
		t.Error("no failure is recorded")
	}
	c.Status.Conditions = conditions(c, corev1.PersistentVolumeClaimControllerResizeError, "no room")
	if !saysFailed(c, true, "no room") || saysFailed(c, true, "less room") || saysFailed(c, false, "no room") {
		t.Error("the recorded failure is not recognised")
	}
	if !isMarked(c, resource.MustParse("9Gi")) || isMarked(c, resource.MustParse("2Gi")) || isMarked(growing("9Gi", "9Gi", ""), resource.MustParse("9Gi")) {
		t.Error("a recorded expansion is not recognised")
	}
}
