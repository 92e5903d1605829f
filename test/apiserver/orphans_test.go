//go:build e2e

package apiserver

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/report"
)

// startAudits runs an agent that compares disks and cluster all the time.
func (n *node) startAudits(t *testing.T) *kube.Agent {
	t.Helper()
	return n.start(t, func(c *kube.Config) { c.AuditEvery = time.Second })
}

// untilOrphans waits until an audit has found exactly these, by the name of the LV.
func untilOrphans(t *testing.T, agent *kube.Agent, want map[string]report.Reason) {
	t.Helper()
	soon(t, fmt.Sprintf("the orphans are %v", want), func() bool {
		got := map[string]report.Reason{}
		for _, o := range agent.Comparison().Unreferenced {
			got[o.LV] = o.Reason
		}
		return maps.Equal(got, want)
	})
}

// TestOrphansAreReportedNotRemoved: what no object stands for is found, told and never removed; what an object of another name stands for, or
// what is being made, is none.
func TestOrphansAreReportedNotRemoved(t *testing.T) {
	here := newNode(t, "a")
	fake := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
	foreign, err := fake.Start(t, lvm.Config{Cluster: "another"}).Create(t.Context(), lvm.Spec{
		Name: "theirs", Required: lvm.GiB, Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin}})
	must(t, err)
	here.host = fake.Start(t, lvm.Config{Cluster: "this"})
	fine := here.bound(t, "fine", corev1.PersistentVolumeFilesystem)
	orphan := here.bound(t, "orphan", corev1.PersistentVolumeFilesystem)
	renamed := here.bound(t, "renamed", corev1.PersistentVolumeFilesystem)
	agent := here.startAudits(t)
	untilOrphans(t, agent, map[string]report.Reason{foreign.ID.LV: report.ReasonOtherCluster})

	pv := expectVolumeKept(t, renamed)
	dropVolume(t, pv.Name)
	pv.ObjectMeta = metav1.ObjectMeta{Name: "by-hand"}
	pv.Spec.ClaimRef = nil
	_, err = admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	must(t, err)
	dropVolume(t, orphan.Spec.VolumeName)
	making := newClaim(t, "making", func(*corev1.PersistentVolumeClaim) {})
	unbound := here.create(t, "pvc-"+string(making.UID), making.Namespace+"/making")
	snapshot, err := here.host.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "snapshot-1", Source: unbound.ID})
	must(t, err)
	_, err = here.host.Activate(t.Context(), unbound.ID, unbound.UUID)
	must(t, err)
	want := map[string]report.Reason{
		foreign.ID.LV: report.ReasonOtherCluster, orphan.Spec.VolumeName: report.ReasonUnreferenced, snapshot.ID.LV: report.ReasonUnreferenced,
	}
	untilOrphans(t, agent, want)
	if text := eventOn(t, "default", here.name, "UnreferencedVolumes"); !strings.Contains(text, "nodelvm adopt") {
		t.Errorf("the node is told %q", text)
	}
	eventOn(t, "default", here.name, "OtherClusterVolumes")
	expectVolumeKept(t, fine)

	// The claim starts afresh: what it had is abandoned, and still there.
	must(t, admin.CoreV1().PersistentVolumeClaims(orphan.Namespace).Delete(t.Context(), orphan.Name, metav1.DeleteOptions{}))
	patchClaim(t, orphan, "", `{"metadata": {"finalizers": null}}`)
	newClaim(t, "orphan", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-afresh" })
	want[orphan.Spec.VolumeName] = report.ReasonAbandoned
	untilOrphans(t, agent, want)
	eventOn(t, "default", here.name, "AbandonedVolumes")
	if all, err := here.host.ManagedVolumes(t.Context()); err != nil || len(all.Owned) != 6 {
		t.Errorf("there are %d volumes and snapshots left of 6: %v", len(all.Owned), err)
	}
}

// TestReturningNodeClearsLoss: the node itself says that it is there, and that its groups are or are not.
func TestReturningNodeClearsLoss(t *testing.T) {
	here := newNode(t, "a")
	fake := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
	here.host = fake.Start(t, lvm.Config{})
	claim := here.inUse(t, "data", optedIn, corev1.PersistentVolumeReclaimDelete)
	patchVolume(t, claim.Spec.VolumeName, "", `{"metadata": {"annotations": {"nodelvm.io/lost-since": "2026-01-02T03:04:05Z"}}}`)
	here.startAudits(t)
	untilNoted := func(annotation string, noted bool) {
		t.Helper()
		soon(t, fmt.Sprintf("%s is noted: %v", annotation, noted), func() bool {
			return (expectVolumeKept(t, claim).Annotations[annotation] != "") == noted
		})
	}
	untilNoted("nodelvm.io/lost-since", false)

	plug := fake.Unplug("vg")
	if text := eventOn(t, claim.Namespace, claim.Name, "VolumeGroupLost"); !strings.Contains(text, here.name) || !strings.Contains(text, claim.Spec.VolumeName) {
		t.Errorf("the event says %q", text)
	}
	untilNoted("nodelvm.io/volume-group-lost-since", true)
	startController(t, "a")
	eventOn(t, claim.Namespace, claim.Name, "VolumeLost")
	plug()
	untilNoted("nodelvm.io/volume-group-lost-since", false)
	untilNoted("nodelvm.io/lost-since", false)
	if text := eventOn(t, claim.Namespace, claim.Name, "VolumeLostResolved"); !strings.Contains(text, "volume group") {
		t.Errorf("the event says %q", text)
	}
	time.Sleep(grace)
	expectKept(t, claim)

	fake.Unplug("vg")
	playVolumeController(t, claim)
	untilGone(t, "the claim of a group that stays lost", claimOf(t, claim))
	untilGone(t, "its volume", volumeOf(t, claim))
}
