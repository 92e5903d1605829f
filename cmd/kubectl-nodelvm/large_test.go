package main

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/report"
)

// TestALargeCluster: doctor's checks and the list of volumes take no more processor time than a user waits, with 1,000 nodes, 20,000 volumes, 5,000 claims
// that wait, and 50,000 pods. The time on the clock would include that of other tests.
func TestALargeCluster(t *testing.T) {
	limit := wait.Limit(4 * time.Second) // each takes less than one
	f := sound()
	one, size := f.answers[0], "10Gi"
	f.volumes, f.answers = nil, nil
	for i := range 1000 {
		a := answer{node: fmt.Sprint("large-", i), page: one.page}
		a.page.Volumes = nil
		for j := range 20 {
			pv := volume(fmt.Sprintf("pvc-%d-%d", i, j), a.node, vg1, fmt.Sprintf("shop/bound-%d-%d", i, j), size)
			a.page.Volumes = append(a.page.Volumes, report.Volume{ID: pv.Spec.CSI.VolumeHandle, State: one.page.Volumes[0].State})
			f.volumes = append(f.volumes, pv)
			claim := expandedClaim(size)
			claim.Name, claim.Spec.VolumeName = pv.Spec.ClaimRef.Name, pv.Name
			f.claims = append(f.claims, claim)
		}
		f.answers, f.nodes = append(f.answers, a), append(f.nodes, corev1.Node{ObjectMeta: labelled(a.node)})
	}
	for i := range 50_000 {
		f.pods = append(f.pods, userOf(fmt.Sprint("waits-", i%5000), fmt.Sprint("pod-", i)))
	}
	for i := range 5000 {
		f.claims = append(f.claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("waits-", i)},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("local")}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}})
	}
	for i := range 100 {
		f.budgets = append(f.budgets, budget(fmt.Sprint("budget-", i), 1, 1))
		f.budgets[i].Namespace = "bank"
	}
	for what, do := range map[string]func(){
		"doctor":         func() { examine(f) },
		"doctor, events": func() { f.eventful() },
		"volumes":        func() { volumeRowsOf(f.volumes, usersOf(f.pods), f.answers) },
		"moves":          func() { moveRowsOf(f.claims, f.volumes, true, usersOf(f.pods), f.answers, now) },
	} {
		began := processorTime(t)
		do()
		if took := processorTime(t) - began; took > limit {
			t.Errorf("%s: %s", what, took)
		}
	}
}

// processorTime is the processor time of this process until now.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
