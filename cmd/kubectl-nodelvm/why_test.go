package main

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/lvm/inventory"
	"github.com/nodelvm/nodelvm/pending"
)

// waitingShop returns the sound cluster with pod db-0, whose claim log is bound on node-2, and whose claim data waits.
func waitingShop() *whyFacts {
	f := sound()
	w := &whyFacts{namespace: "shop", classes: f.classes, volumes: f.volumes, contents: f.contents, answers: f.answers}
	claim := func(name, class, size string, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaim {
		return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(class), Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}},
			Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
	}
	w.claims = []corev1.PersistentVolumeClaim{claim("data", "local", "200Gi", corev1.ClaimPending), claim("log", "thin", "4Gi", corev1.ClaimBound)}
	w.claims[1].Spec.VolumeName = "pvc-2"
	w.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "l", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "log"}}},
	}}}}
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		w.nodes = append(w.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return w
}

// explained returns the output of why for a claim or pod.
func explained(t *testing.T, w *whyFacts, name string) string {
	t.Helper()
	claims, err := w.named(name)
	if err != nil {
		t.Fatal(err)
	}
	var answers []pending.Answer
	for _, claim := range claims {
		answers = append(answers, pending.Explain(w.facts(claim)))
	}
	var text bytes.Buffer
	if err := writeWhy(&text, screen{}, answers, false); err != nil {
		t.Fatal(err)
	}
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

func TestWhySaysWhatItCannotExplain(t *testing.T) {
	missing := waitingShop()
	missing.claims = missing.claims[1:]
	bound := waitingShop()
	bound.claims[0].Status.Phase = corev1.ClaimBound
	for want, ask := range map[string]struct {
		w    *whyFacts
		name string
	}{
		`neither a claim nor a pod "nothing"`:     {waitingShop(), "nothing"},
		"uses claim data, which does not exist":   {missing, "db-0"},
		"all claims of pod db-0 have their volum": {bound, "db-0"},
	} {
		if _, err := ask.w.named(ask.name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("why %s: %v, want %q", ask.name, err, want)
		}
	}
}

func TestWhyFollowsTheSource(t *testing.T) {
	w := waitingShop()
	w.claims[0].Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("4Gi")
	w.claims[0].Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "snap-1"}
	if got := explained(t, w, "data"); !strings.Contains(got, "source, VolumeSnapshot snap-1, does not exist") {
		t.Errorf("a missing snapshot:\n%s", got)
	}
	snapshot := namespaceSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "snap-1"}}
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

func TestWhyIsBoundedAndPrintable(t *testing.T) {
	w := waitingShop()
	for range 100 {
		w.nodes = append(w.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "evil\x1b[2J"}})
	}
	w.answers[0].page.Classes[0].Offers[0] = inventory.Offer{Group: "vg-data", Obstacle: "forged\nline"}
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
	f.nodes, f.users = w.nodes, w.pods
	for range 100 {
		f.claims = append(f.claims, w.claims[0])
	}
	unused := w.claims[0]
	unused.Name = "unused"
	f.claims = append(f.claims, unused)
	findings := examine(f).Findings
	if len(findings) != claimsReported+1 || !strings.Contains(findings[claimsReported].What, "up to 81 more claims") {
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
