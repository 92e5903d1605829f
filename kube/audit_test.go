package kube

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestOnlyProvenAbsenceIsTold: an event that advises to delete a claim is not for a volume that merely cannot be read.
func TestOnlyProvenAbsenceIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"there":            {nil, false},
		"proven absent":    {lvm.Errorf(lvm.KindNotFound, "no such volume"), true},
		"its group is not": {lvm.Errorf(lvm.KindNotOurs, "no such group"), true},
		"damaged marks":    {lvm.Errorf(lvm.KindInternal, "marked as ours, but unreadable"), false},
		"a hung disk":      {context.DeadlineExceeded, false},
	} {
		if got := isMissing(c.err); got != c.want {
			t.Errorf("%s: missing is %v", name, got)
		}
	}
}

// TestAbandonedIsWhatNobodyHasAgain: what lvremove is advised for must not be in use.
func TestAbandonedIsWhatNobodyHasAgain(t *testing.T) {
	for phase, want := range map[corev1.PersistentVolumePhase]bool{
		corev1.VolumeReleased: true, corev1.VolumeFailed: true, corev1.VolumeBound: false, corev1.VolumeAvailable: false,
	} {
		pv := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: phase}}
		if isAbandoned(pv) {
			t.Errorf("%s, and never noted: it is abandoned", phase)
		}
		pv.Annotations = map[string]string{annAbandoned: "2026-01-02T03:04:05Z"}
		if got := isAbandoned(pv); got != want {
			t.Errorf("%s: abandoned is %v", phase, got)
		}
	}
}
