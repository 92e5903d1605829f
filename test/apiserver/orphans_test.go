//go:build e2e

package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/report"
)

// startAudits runs an agent that compares disks and cluster all the time.
func (n *node) startAudits(t *testing.T) *kube.Agent {
	t.Helper()
	client, err := kubeclient.NewClientFor(n.restConfig())
	if err != nil {
		t.Fatal(err)
	}
	agent := kube.NewAgent(kube.Config{Client: client, Node: n.name, Volumes: n.host, Holdings: n.host.ManagedVolumes, AuditEvery: time.Second,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		agent.Run(ctx)
	}()
	t.Cleanup(sync.OnceFunc(func() { cancel(); <-ended }))
	return agent
}

// untilOrphans waits until an audit has found exactly these: kind and name of the LV, in the order of their handles.
func untilOrphans(t *testing.T, agent *kube.Agent, want map[string]report.Reason) {
	t.Helper()
	got := map[string]report.Reason{}
	for deadline := time.Now().Add(wait.Limit(20 * time.Second)); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		got = map[string]report.Reason{}
		for _, o := range agent.Comparison().Unreferenced {
			got[o.LV] = o.Reason
		}
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
	}
	t.Fatalf("orphans %v, want %v", got, want)
}

func dropVolume(t *testing.T, name string) {
	t.Helper()
	patchVolume(t, name, "", `{"metadata": {"finalizers": null}}`)
	if err := admin.CoreV1().PersistentVolumes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestOrphansAreReportedNotRemoved: what no object stands for is found, told and never removed; what an object of another name stands for, or
// what is being made, is none.
func TestOrphansAreReportedNotRemoved(t *testing.T) {
	here := newNode(t, "a")
	fake := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
	foreign, err := fake.Start(t, lvm.Config{Cluster: "another"}).Create(t.Context(), lvm.Spec{
		Name: "theirs", Required: lvm.GiB, Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin}})
	if err != nil {
		t.Fatal(err)
	}
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
	if _, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dropVolume(t, orphan.Spec.VolumeName)
	making := newClaim(t, "making", func(*corev1.PersistentVolumeClaim) {})
	unbound, err := here.host.Create(t.Context(), lvm.Spec{Name: "pvc-" + string(making.UID), Claim: making.Namespace + "/making", Required: lvm.GiB,
		Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin}})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := here.host.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "snapshot-1", Source: unbound.ID})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := here.host.Activate(t.Context(), unbound.ID, unbound.UUID); err != nil {
		t.Fatal(err)
	}
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
	if err := admin.CoreV1().PersistentVolumeClaims(orphan.Namespace).Delete(t.Context(), orphan.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
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
		for deadline := time.Now().Add(wait.Limit(20 * time.Second)); ; time.Sleep(50 * time.Millisecond) {
			if pv := expectVolumeKept(t, claim); (pv.Annotations[annotation] != "") == noted {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is noted: %v, for ever", annotation, !noted)
			}
		}
	}
	untilNoted("nodelvm.io/lost-since", false)

	plug := fake.Unplug("vg")
	if text := eventOn(t, claim.Namespace, claim.Name, "VolumeGroupLost"); !strings.Contains(text, here.name) || !strings.Contains(text, claim.Spec.VolumeName) {
		t.Errorf("the event says %q", text)
	}
	untilNoted("nodelvm.io/volume-group-lost-since", true)
	startJanitor(t, "a", 0)
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

// TestAdoptedVolumesBind: what is printed goes through kubectl as it is, and the API server takes it twice.
func TestAdoptedVolumesBind(t *testing.T) {
	here := newNode(t, "a")
	volume, err := here.host.Create(t.Context(), lvm.Spec{Name: "old", Required: lvm.GiB, Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin}})
	if err != nil {
		t.Fatal(err)
	}
	agent := here.startAudits(t)
	untilOrphans(t, agent, map[string]report.Reason{volume.ID.LV: report.ReasonUnreferenced})
	text, err := kube.Manifests(kube.Adoption{Volume: volume, Attributes: map[string]string{"nodelvm.io/lv-uuid": volume.UUID}, Node: here.name,
		Claim: namespace(t) + "/data", Class: "thin", FSType: "ext4", Policy: corev1.PersistentVolumeReclaimRetain})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd := exec.CommandContext(t.Context(), kubectl, "--server="+server, "--token="+adminPass, "--insecure-skip-tls-verify", "apply", "--validate=strict", "-f", "-")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, bytes.TrimSpace(out), text)
		}
	}
	untilOrphans(t, agent, map[string]report.Reason{})
	client, err := kubeclient.NewClientFor(here.restConfig())
	if err != nil {
		t.Fatal(err)
	}
	search := kube.OrphanSearch{Client: client}
	if holder, err := search.Holder(t.Context(), volume); err != nil || holder != volume.Name {
		t.Errorf("it is not seen to be taken: %q, %v", holder, err)
	}
	volume.ID.LV = "another"
	if holder, err := search.Holder(t.Context(), volume); err != nil || holder != "" {
		t.Errorf("another volume is taken for it: %q, %v", holder, err)
	}
}
