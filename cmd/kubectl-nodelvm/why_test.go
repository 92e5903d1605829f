package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// waitingShop returns the sound cluster with pod db-0, whose claim log is bound on node-2, and whose claim data waits.
func waitingShop() *facts {
	w := sound()
	claim := func(name, class, size string, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaim {
		return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class), Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}},
			Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	}
	w.claims = []corev1.PersistentVolumeClaim{claim("data", "local", "200Gi", corev1.ClaimPending), claim("log", "thin", "4Gi", corev1.ClaimBound)}
	w.claims[1].Spec.VolumeName, w.volumes[1].Spec.ClaimRef.Name = "pvc-2", "log"
	w.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "l", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "log"}}},
	}}}}
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		w.nodes = append(w.nodes, corev1.Node{ObjectMeta: labelled(name)})
	}
	return w
}

// explained returns the output of why for a claim or pod.
func explained(t *testing.T, w *facts, name string) string {
	t.Helper()
	a, err := w.named("shop", name)
	must(t, err)
	answers := w.explain(a)
	var text bytes.Buffer
	must(t, writeWhy(&text, answers, false))
	return text.String()
}

func TestWhyNamesWhatEachNodeLacks(t *testing.T) {
	const want = `claim shop/data: 200 GiB of StorageClass "local" for db-0
  cause: no node can have the volume
    fix: request at most 80 GiB, or add disks to node-2 or delete volumes there
  node-2: volume group vg-data has capacity for a volume of at most 80 GiB, and the claim requests 200 GiB
  node-1: the pod also uses claim log, whose volume is on node-2
  node-1: volume group vg-data has capacity for a volume of at most 80 GiB, and the claim requests 200 GiB
  node-3: the pod also uses claim log, whose volume is on node-2
  node-3: nodelvm does not run there
`
	for _, name := range []string{"data", "pvc/data", "db-0", "pod/db-0"} {
		if got := explained(t, waitingShop(), name); got != want {
			t.Errorf("why %s:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// TestWhyAboutPods: why names a claim that is missing beside one that waits, what a pod waits for whose claims have their volumes, and
// both where a claim and a pod have the same name.
func TestWhyAboutPods(t *testing.T) {
	if _, err := waitingShop().named("shop", "nothing"); err == nil || !strings.Contains(err.Error(), `neither a claim nor a pod "nothing"`) {
		t.Errorf("why nothing: %v", err)
	}
	for name, test := range map[string]struct {
		change func(w *facts)
		ask    string
		want   []string
	}{
		"a missing claim of a Job": {func(w *facts) {
			w.claims = w.claims[1:]
			w.pods[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "db-0-join", Controller: ptr.To(true)}}
		}, "db-0", []string{"if an operator creates Job db-0-join with its claims, delete that"}},
		"a missing claim": {func(w *facts) { w.claims = w.claims[1:] }, "db-0", []string{"claim shop/data for db-0\n  cause: claim data does not exist, and pod db-0 waits for it\n"}},
		"a missing claim beside one that waits": {func(w *facts) {
			w.claims = w.claims[:1]
		}, "db-0", []string{"claim shop/data: 200 GiB", "claim shop/log for db-0\n  cause: claim log does not exist"}},
		"a pod whose claims have their volumes": {func(w *facts) { w.claims = w.claims[1:]; w.pods[0].Spec.Volumes = w.pods[0].Spec.Volumes[1:] }, "db-0",
			[]string{"pod shop/db-0\n  cause: its volume (claim log) is on node-2, which is cordoned: kubectl uncordon node-2\n    fix: kubectl uncordon node-2\n"}},
		"a bound claim with such a pod": {func(w *facts) { w.claims = w.claims[1:]; w.pods[0].Spec.Volumes = w.pods[0].Spec.Volumes[1:] }, "log",
			[]string{"the claim does not wait: it is bound to pvc-2", "pod shop/db-0\n  cause: its volume (claim log) is on node-2, which is cordoned"}},
		"a claim and a pod of one name": {func(w *facts) {
			w.pods[0].Name, w.pods[0].Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "log", "gone"
		}, "log", []string{"claim shop/log: 4 GiB", "it is bound to pvc-2", "claim gone does not exist, and pod log waits for it"}},
		"a claim that is being deleted": {func(w *facts) {
			w.claims, w.pods[0].Spec.Volumes = w.claims[1:], w.pods[0].Spec.Volumes[1:]
			w.claims[0].DeletionTimestamp = &metav1.Time{Time: now}
		}, "db-0", []string{"its claim log is being deleted"}},
		"a pod without claims": {func(w *facts) { w.pods[0].Spec.Volumes = nil }, "db-0", []string{"pod shop/db-0\n  cause: the scheduler has written nothing about the pod"}},
	} {
		w := waitingShop()
		w.pods[0].Status.Phase, w.nodes[1].Spec.Unschedulable = corev1.PodPending, true
		test.change(w)
		got := explained(t, w, test.ask)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in\n%s", name, want, got)
			}
		}
	}
}

// TestWhyQuotesEventsFirst: the events of the claim, and the state of csi-provisioner on the selected node, come before what the page suggests.
func TestWhyQuotesEventsFirst(t *testing.T) {
	w := waitingShop()
	claim := &w.claims[0]
	claim.UID, claim.Annotations = "c", map[string]string{api.AnnotationSelectedNode: "node-2"}
	claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	if got := explained(t, w, "data"); !strings.Contains(got, "why it does not exist yet is unknown") || !strings.Contains(got, "kubectl -n nodelvm-system logs nodelvm-node-2 -c csi-provisioner") {
		t.Errorf("without an event:\n%s", got)
	}
	w.unexplained = []string{"events: forbidden"}
	if got := explained(t, w, "data"); !strings.Contains(got, "is unknown: not all could be read") || !strings.Contains(got, "\n  not read: events: forbidden\n") {
		t.Errorf("without the right to read events:\n%s", got)
	}
	w.unexplained = nil
	w.drivers[1].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "csi-provisioner", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
	if got := explained(t, w, "data"); !strings.Contains(got, "cause: node node-2 is selected for the volume: csi-provisioner does not run there: its container csi-provisioner waits (CrashLoopBackOff)") {
		t.Errorf("with a crashed csi-provisioner:\n%s", got)
	}
	w.events = map[types.UID][]corev1.Event{"c": {{Type: corev1.EventTypeWarning, Reason: "ProvisioningFailed", Count: 6, LastTimestamp: metav1.NewTime(now.Add(-6 * time.Second)),
		Source: corev1.EventSource{Component: "nodelvm.io_nodelvm-node-2_0d9f"}, Message: `failed to provision volume with StorageClass "local": rpc error: code = Internal desc = no dm-thin-pool`}}}
	if got := explained(t, w, "data"); !strings.Contains(got, "for db-0\n  cause: node-2's driver refused 6 times, last 6 s ago: no dm-thin-pool\n") {
		t.Errorf("with an event:\n%s", got)
	}
}

// TestWhyOfAnEncryptedClass: the admission policy refuses the volume, and no event says so.
func TestWhyOfAnEncryptedClass(t *testing.T) {
	w := waitingShop()
	w.classes[0].Parameters[api.ParameterEncryption], w.keyPolicy = "luks2", policyOf("['other']")
	if got := explained(t, w, "data"); !strings.Contains(got, "cause: its volumes are encrypted, and the admission policy nodelvm-node-restriction does not name the class") {
		t.Error(got)
	}
}

// TestWhyAddsUpWaitingClaims: both claims of the pod wait, and fit only apart.
func TestWhyAddsUpWaitingClaims(t *testing.T) {
	w := waitingShop()
	for i, size := range []string{"50Gi", "40Gi"} {
		w.claims[i].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
		w.claims[i].Spec.VolumeName, w.claims[i].Status.Phase = "", corev1.ClaimPending
	}
	w.claims[1].Spec.StorageClassName = ptr.To("local")
	if got := explained(t, w, "data"); !strings.Contains(got, "node-2: the pod's claims data, log request 90 GiB together, and it has capacity for 80 GiB of StorageClass local") {
		t.Errorf("of one class:\n%s", got)
	}
	w.classes = append(w.classes, class("other", map[string]string{"volumeGroup": "vg-data"}))
	w.claims[1].Spec.StorageClassName = ptr.To("other")
	for i := range w.answers {
		w.answers[i].page.Classes = append(w.answers[i].page.Classes, report.Class{Name: "other", Offers: w.answers[i].page.Classes[0].Offers})
	}
	if got := explained(t, w, "data"); !strings.Contains(got, "request 90 GiB together, and volume group vg-data has 80 GiB free") {
		t.Errorf("of two classes:\n%s", got)
	}
	w.claims[1].Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "ReplicationDestination", Name: "r"}
	if got := explained(t, w, "data"); strings.Contains(got, "together") {
		t.Errorf("csi-provisioner creates no volume for a populated claim:\n%s", got)
	}
}

// TestWhyOfANodeWithAnUnreadableDisk: a disk that the driver cannot read says nothing about a group that it serves the class from.
func TestWhyOfANodeWithAnUnreadableDisk(t *testing.T) {
	w := waitingShop()
	w.answers[0].page.Unread = []string{"/dev/sdc: input/output error"}
	if got := explained(t, w, "data"); strings.Contains(got, "/dev/sdc") || !strings.Contains(got, "node-1: volume group vg-data has capacity for a volume of at most 80 GiB") {
		t.Errorf("with the group:\n%s", got)
	}
	w.answers[0].page.Classes[0].Offers = nil
	if got := explained(t, w, "data"); !strings.Contains(got, "node-1: cannot read a disk: /dev/sdc") || strings.Contains(got, "node-1: it has no volume group") {
		t.Errorf("without the group:\n%s", got)
	}
}

// TestWhyOfANodeWithAnIgnoredDisk: beside another storage driver, a group that an admin has created is not accepted yet.
func TestWhyOfANodeWithAnIgnoredDisk(t *testing.T) {
	w := waitingShop()
	w.answers[1].page.Classes[0].Offers = nil
	w.answers[1].page.Unaccepted = []lvm.UnacceptedPV{{Device: "/dev/nvme1n1", PV: "pv-x", Reason: "it may be another driver's"}}
	const want = `  node-2: it has no volume group "vg-data", but its driver ignores what is on /dev/nvme1n1`
	if got := explained(t, w, "data"); !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// TestWhyWhileAVolumeMoves: no pod can start with the volume, and the scheduler says only that no node matches.
func TestWhyWhileAVolumeMoves(t *testing.T) {
	w := waitingShop()
	w.pods[0].Spec.Volumes = w.pods[0].Spec.Volumes[1:]
	w.pods[0].Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
		Message: "0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity."}}}
	w.volumes[1].Annotations = map[string]string{api.AnnotationMovingTo: "node-1"}
	const want = "  cause: the volume of its claim log moves to node-1, and no pod can start with it until then\n    fix: wait; what the move waits for: kubectl nodelvm moves -n shop\n"
	if got := explained(t, w, "db-0"); !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

func TestWhyFollowsTheSource(t *testing.T) {
	w := waitingShop()
	w.claims[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("4Gi")
	w.claims[0].Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "snap-1"}
	if got := explained(t, w, "data"); !strings.Contains(got, "source, VolumeSnapshot snap-1, does not exist") {
		t.Errorf("a missing snapshot:\n%s", got)
	}
	snapshot := namespaceSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "snap-1"}}
	w.snapshots = []namespaceSnapshot{snapshot}
	if got := explained(t, w, "data"); !strings.Contains(got, "snap-1, is not ready") {
		t.Errorf("a snapshot that is not ready:\n%s", got)
	}
	w.snapshots[0].Status.Ready = ptr.To(true)
	if got := explained(t, w, "data"); !strings.Contains(got, "node-1: a copy is on the disks of its source, and VolumeSnapshot snap-1 is on node-2") {
		t.Errorf("a snapshot on node-2:\n%s", got)
	}
	w.claims[0].Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "log"}
	if got := explained(t, w, "data"); !strings.Contains(got, "PersistentVolumeClaim log is on node-2") {
		t.Errorf("a clone:\n%s", got)
	}
}

// TestWhyForeignSource: csi-provisioner says that it does not find the source of a clone that another driver has.
func TestWhyForeignSource(t *testing.T) {
	w := waitingShop()
	w.claims[0].Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "disk"}
	w.events = map[types.UID][]corev1.Event{w.claims[0].UID: {{Reason: "ProvisioningFailed", Message: `failed to provision volume with StorageClass "local": error getting PVC disk`}}}
	disk := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "disk", Annotations: map[string]string{api.AnnotationStorageProvisioner: "disks.example"}}}
	disk.Status.Phase, disk.Spec.VolumeName = corev1.ClaimBound, "pvc-disk"
	w.claims = append(w.claims, disk)
	got := explained(t, w, "data")
	if !strings.Contains(got, "the claim's source, PersistentVolumeClaim disk, has a volume of the driver disks.example, and nodelvm copies only its own volumes") || strings.Contains(got, "error getting PVC") {
		t.Errorf("%s", got)
	}
}

func TestWhyIsBoundedAndPrintable(t *testing.T) {
	w := waitingShop()
	for range 100 {
		w.nodes = append(w.nodes, corev1.Node{ObjectMeta: labelled("evil\x1b[2J")})
	}
	w.answers[0].page.Classes[0].Offers[0] = report.Offer{Group: "vg-data", Obstacle: "forged\nline"}
	got := explained(t, w, "data")
	if strings.ContainsAny(got, "\x1b") || strings.Contains(got, "\nline") {
		t.Errorf("the text has a control character of a node:\n%q", got)
	}
	if lines := strings.Count(got, "\n"); lines > 60 || !strings.Contains(got, "more nodes: see -o wide") {
		t.Errorf("%d lines for 103 nodes", lines)
	}
}

func TestDoctorReportsABoundedNumberOfClaims(t *testing.T) {
	f, w := sound(), waitingShop()
	f.nodes, f.pods = w.nodes, w.pods
	for range 100 {
		f.claims = append(f.claims, w.claims[0])
	}
	unused := w.claims[0]
	unused.Name = "unused"
	f.claims = append(f.claims, unused)
	findings := examine(f).Findings
	if len(findings) != claimsReported+1 || !strings.Contains(findings[claimsReported].What, "80 more claims") {
		t.Errorf("%d findings, the last of them %+v", len(findings), findings[len(findings)-1])
	}
	for i := range f.answers {
		f.answers[i].page.Classes[0].Error = "no such parameter"
	}
	for _, x := range examine(f).Findings {
		if x.Check == "claims" {
			t.Errorf("a claim is reported beside its class: %+v", x)
		}
	}
}
