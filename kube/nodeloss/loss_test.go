package nodeloss

import (
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

func tainted(key string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoExecute}}},
	}
}

// TestUnreachableNodeIsNotLost: a node that does not answer may return with its disks at any time.
func TestUnreachableNodeIsNotLost(t *testing.T) {
	const since = "2026-01-02T03:04:05Z"
	outAndReady := tainted(corev1.TaintNodeOutOfService)
	outAndReady.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	outAndSilent := tainted(corev1.TaintNodeOutOfService)
	outAndSilent.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	unknown := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}}
	for name, c := range map[string]struct {
		node  *corev1.Node
		group string
		want  lossKind
	}{
		"gone":                       {nil, "", lossGone},
		"gone, and its group before": {nil, since, lossGone},
		"there":                      {&corev1.Node{}, "", lossNone},
		"not ready":                  {tainted(corev1.TaintNodeNotReady), "", lossNone},
		"unreachable":                {tainted(corev1.TaintNodeUnreachable), "", lossNone},
		"cordoned":                   {tainted(corev1.TaintNodeUnschedulable), "", lossNone},
		"out of service":             {tainted(corev1.TaintNodeOutOfService), "", lossTaint},
		"out of service, silent":     {outAndSilent, "", lossTaint},
		"out of service, and back":   {outAndReady, "", lossNone},
		"group lost":                 {&corev1.Node{}, since, lossGroup},
		"group lost, silent since":   {unknown, since, lossNone},
		"group lost, no time":        {&corev1.Node{}, "yes", lossNone},
	} {
		if got := lossOf("n", c.node, c.group); got.kind != c.want {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
		if c.group != "" {
			continue
		}
		if got := watchedLoss(c.node, c.node != nil); got != c.want {
			t.Errorf("%s: by its watch %q, want %q", name, got, c.want)
		}
	}
}

func podOn(node string, phase corev1.PodPhase, deleted bool) corev1.Pod {
	pod := corev1.Pod{Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
	if deleted {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return pod
}

func TestDecide(t *testing.T) {
	now := time.Now()
	gone, taint, group := loss{kind: lossGone, node: "n"}, loss{kind: lossTaint, node: "n"}, loss{kind: lossGroup, node: "n"}
	deleted := &metav1.Time{Time: now}
	claim := &corev1.PersistentVolumeClaim{}
	going := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: deleted}}
	volume := func(phase corev1.PersistentVolumePhase, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			Spec:   corev1.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: policy, ClaimRef: &corev1.ObjectReference{Name: "c", UID: "u"}},
			Status: corev1.PersistentVolumeStatus{Phase: phase},
		}
	}
	bound := volume(corev1.VolumeBound, corev1.PersistentVolumeReclaimDelete)
	released := volume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimDelete)
	retained := volume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)
	abandoned := volume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)
	abandoned.Annotations = map[string]string{api.AnnotationAbandonedSince: "2026-01-02T03:04:05Z"}
	held, free := released.DeepCopy(), released.DeepCopy()
	held.DeletionTimestamp, held.Finalizers = deleted, []string{"kubernetes.io/pv-protection", api.FinalizerProvisioner}
	free.DeletionTimestamp = deleted
	never := volume(corev1.VolumeAvailable, corev1.PersistentVolumeReclaimDelete)
	never.Spec.ClaimRef = nil
	kept := volume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)
	kept.Annotations = map[string]string{api.AnnotationReclaimPolicy: "Delete"}
	old := now.Add(-time.Hour)
	moves := func(annotation, text string) *corev1.PersistentVolume {
		pv := volume(corev1.VolumeBound, corev1.PersistentVolumeReclaimRetain)
		pv.Annotations = map[string]string{api.AnnotationMovingTo: "m", annotation: text}
		return pv
	}
	movedAndReleased := moves(api.AnnotationHandedOver, "h")
	movedAndReleased.Status.Phase = corev1.VolumeReleased
	waits, runsThere, runsElsewhere := podOn("", corev1.PodPending, false), podOn("n", corev1.PodRunning, false), podOn("m", corev1.PodRunning, false)
	for name, c := range map[string]struct {
		observation
		want step
	}{
		"nothing is lost":                  {observation{Pv: bound, Claim: claim, OptIn: true}, stepNothing},
		"back in time":                     {observation{Pv: bound, Claim: claim, OptIn: true, Marked: now}, stepClearLoss},
		"back late":                        {observation{Pv: bound, Claim: claim, OptIn: true, Marked: old}, stepClearLoss},
		"first seen":                       {observation{Loss: gone, Pv: bound, Claim: claim, OptIn: true}, stepMark},
		"within the grace period":          {observation{Loss: gone, Pv: bound, Claim: claim, OptIn: true, Marked: now}, stepReport},
		"released, within it":              {observation{Loss: gone, Pv: released, OptIn: true, Marked: now}, stepReport},
		"not opted in":                     {observation{Loss: gone, Pv: bound, Claim: claim, Marked: old}, stepReport},
		"due":                              {observation{Loss: gone, Pv: bound, Claim: claim, OptIn: true, Marked: old}, stepDeleteClaim},
		"due, but not seen for long":       {observation{Loss: gone, Pv: bound, Claim: claim, OptIn: true, Marked: old, Watched: 9 * time.Minute}, stepReport},
		"due, and seen for long":           {observation{Loss: gone, Pv: bound, Claim: claim, OptIn: true, Marked: old, Watched: 10 * time.Minute}, stepDeleteClaim},
		"begun by another one":             {observation{Loss: gone, Pv: bound, Claim: going, OptIn: true, Marked: old}, stepAwait},
		"kept while its claim was deleted": {observation{Loss: gone, Pv: kept, OptIn: true, Marked: old}, stepDeletePV},
		"kept so, and back":                {observation{Pv: kept}, stepClearLoss},
		"due, copied to another node":      {observation{Loss: gone, Pv: moves(api.AnnotationMoveAnswer, `{"received": "h"}`), Claim: claim, OptIn: true, Marked: old}, stepReport},
		"due, moved, which is known there": {observation{Loss: gone, Pv: moves(api.AnnotationMoveAnswer, `{"confirmed": "h"}`), Claim: claim, OptIn: true, Marked: old}, stepReport},
		"due, handed over":                 {observation{Loss: gone, Pv: moves(api.AnnotationHandedOver, "h"), Claim: claim, OptIn: true, Marked: old}, stepReport},
		"handed over, the claim is gone":   {observation{Loss: gone, Pv: movedAndReleased, OptIn: true, Marked: old}, stepNothing},
		"due, copied in part":              {observation{Loss: gone, Pv: moves(api.AnnotationMoveAnswer, `{"done": 1, "total": 2}`), Claim: claim, OptIn: true, Marked: old}, stepReport},
		"due, no copy yet":                 {observation{Loss: gone, Pv: moves("a", "b"), Claim: claim, OptIn: true, Marked: old}, stepReport},
		"due by its taint":                 {observation{Loss: taint, Pv: bound, Claim: claim, OptIn: true, Marked: old}, stepDeleteClaim},
		"due, its pod on the node":         {observation{Loss: gone, Pv: bound, Claim: claim, OptIn: true, Marked: old, users: []corev1.Pod{runsThere}}, stepDeleteClaim},
		"a pod runs elsewhere":             {observation{Loss: gone, Pv: bound, Claim: claim, OptIn: true, Marked: old, users: []corev1.Pod{waits, runsElsewhere}}, stepInUse},
		"a pod runs where a group is lost": {observation{Loss: group, Pv: bound, Claim: claim, OptIn: true, Marked: old, users: []corev1.Pod{runsThere}}, stepInUse},
		"a pod cannot start there":         {observation{Loss: group, Pv: bound, Claim: claim, OptIn: true, Marked: old, users: []corev1.Pod{podOn("n", corev1.PodPending, false)}}, stepDeleteClaim},
		"the claim goes, a pod waits":      {observation{Loss: gone, Pv: bound, Claim: going, OptIn: true, Marked: old, users: []corev1.Pod{waits}}, stepDeletePods},
		"a pod ends where nobody ends it":  {observation{Loss: taint, Pv: bound, Claim: going, OptIn: true, Marked: old, users: []corev1.Pod{podOn("n", corev1.PodRunning, true)}}, stepDeletePods},
		"the kubelet ends a pod":           {observation{Loss: group, Pv: bound, Claim: going, OptIn: true, Marked: old, users: []corev1.Pod{podOn("n", corev1.PodRunning, true)}}, stepAwait},
		"the claim goes":                   {observation{Loss: gone, Pv: bound, Claim: going, OptIn: true, Marked: old}, stepAwait},
		"a user deleted the claim":         {observation{Loss: gone, Pv: released, Marked: old}, stepDeletePV},
		"the same, the node may be back":   {observation{Loss: taint, Pv: released, Marked: old}, stepNothing},
		"the claim is gone":                {observation{Loss: taint, Pv: released, OptIn: true, Marked: old}, stepDeletePV},
		"the claim is gone, not yet seen":  {observation{Loss: gone, Pv: bound, OptIn: true, Marked: old}, stepNothing},
		"the volume goes":                  {observation{Loss: gone, Pv: held, OptIn: true, Marked: old}, stepRemoveFinalizer},
		"nothing holds it":                 {observation{Loss: gone, Pv: free, OptIn: true, Marked: old}, stepNothing},
		"retained":                         {observation{Loss: gone, Pv: retained, OptIn: true, Marked: old}, stepAbandon},
		"retained, known":                  {observation{Loss: gone, Pv: abandoned, OptIn: true, Marked: old}, stepNothing},
		"retained, not opted in":           {observation{Loss: gone, Pv: retained, Marked: old}, stepNothing},
		"a broken chain, due":              {observation{Loss: gone, Pv: bound, Claim: claim, broken: errors.New("forged"), OptIn: true, Marked: old}, stepReportBroken},
		"a broken chain, released":         {observation{Loss: gone, Pv: released, broken: errors.New("forged"), OptIn: true, Marked: old}, stepReportBroken},
		"a broken chain, its finalizer":    {observation{Loss: gone, Pv: held, broken: errors.New("forged"), OptIn: true, Marked: old}, stepReportBroken},
		"a broken chain, retained":         {observation{Loss: gone, Pv: retained, broken: errors.New("forged"), OptIn: true, Marked: old}, stepReportBroken},
		"a broken chain, back":             {observation{Pv: kept, broken: errors.New("forged"), Marked: old}, stepReportBroken},
		"never bound":                      {observation{Loss: gone, Pv: never, OptIn: true, Marked: old}, stepNothing},
	} {
		c.Now, c.Grace, c.Watched = now, 10*time.Minute, cmp.Or(c.Watched, time.Hour)
		if got := decide(c.observation); got != c.want {
			t.Errorf("%s: step %d, want %d", name, got, c.want)
		}
	}
}

// TestReportOfMovedVolume: the owner of a claim whose volume another node has is not told to delete the claim.
func TestReportOfMovedVolume(t *testing.T) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Annotations: map[string]string{api.AnnotationMovingTo: "m", api.AnnotationMoveAnswer: `{"confirmed": "h"}`}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	s := observation{Loss: loss{kind: lossGone, node: "n"}, Pv: pv, Claim: claim, OptIn: true}
	if got := s.remedyOfMove(); !strings.Contains(got, "Node m has this volume's data since its move") || !strings.Contains(got, "kubectl -n ns annotate pvc data --overwrite volume.kubernetes.io/selected-node=m") || !strings.Contains(got, "kubectl delete pv pvc-1") {
		t.Errorf("moved: %s", got)
	}
	pv.Annotations[api.AnnotationMoveAnswer] = `{"received": "h"}`
	if got := s.remedyOfMove(); !strings.Contains(got, "Node m has a complete copy, but does not know whether node n has handed the volume over") || strings.Contains(got, "kubectl delete") {
		t.Errorf("copied: %s", got)
	}
	pv.Annotations[api.AnnotationMoveAnswer] = "{"
	for policy, does := range map[string]string{"Delete": ", and without the claim it would delete the volume with its data", "Retain": ", and without the claim it would end the move and keep the volume", "": ". The move goes on"} {
		pv.Annotations[api.AnnotationMoveRecord] = `{"policy": "` + policy + `"}`
		if got := s.remedyOfMove(); !strings.Contains(got, "node n has the only complete copy"+does) {
			t.Errorf("not copied, policy %q: %s", policy, got)
		}
	}
	s.OptIn = false
	if got := s.remedyOfMove(); got != "" {
		t.Errorf("not copied, and never released: %s", got)
	}
}

// TestReportOfLoss: the node of a lost volume group works, and the new volume may be there again.
func TestReportOfLoss(t *testing.T) {
	for kind, elsewhere := range map[lossKind]bool{lossGone: true, lossTaint: true, lossGroup: false} {
		for _, optIn := range []bool{false, true} {
			s := observation{Loss: loss{kind: kind, node: "n"}, Pv: kubetest.VolumeOn("n", "data"), OptIn: optIn}
			if got := s.lostText(); !strings.Contains(got, "again, empty") || strings.Contains(got, "on another node") != elsewhere {
				t.Errorf("%s, opted in %v: %s", kind, optIn, got)
			}
		}
	}
}

func TestDecideContent(t *testing.T) {
	now, gone, taint := time.Now(), loss{kind: lossGone}, loss{kind: lossTaint}
	old, there, going := now.Add(-time.Hour), &kubeclient.Content{}, &kubeclient.Content{}
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: now}, []string{ofSnapshot.finalizer}
	for name, c := range map[string]struct {
		contentObservation
		want step
	}{
		"not lost":                       {contentObservation{C: there}, stepNothing},
		"back":                           {contentObservation{C: there, Marked: old}, stepClearLoss},
		"first seen":                     {contentObservation{C: there, Loss: gone, OptIn: true}, stepMark},
		"within the grace period":        {contentObservation{C: going, Loss: gone, OptIn: true, Marked: now}, stepReport},
		"not opted in":                   {contentObservation{C: there, Loss: gone, Marked: old}, stepReport},
		"due":                            {contentObservation{C: there, Bound: &kubeclient.Snapshot{}, Loss: gone, OptIn: true, Marked: old}, stepDeleteClaim},
		"due, its snapshot is gone":      {contentObservation{C: there, Loss: gone, OptIn: true, Marked: old}, stepReport},
		"a broken chain":                 {contentObservation{C: going, Bound: &kubeclient.Snapshot{}, broken: errors.New("forged"), Loss: gone, OptIn: true, Marked: old}, stepReportBroken},
		"due, but not seen for long":     {contentObservation{C: there, Bound: &kubeclient.Snapshot{}, Loss: gone, OptIn: true, Marked: old, Watched: time.Minute}, stepReport},
		"a user deleted it":              {contentObservation{C: going, Loss: gone, Marked: old}, stepRemoveFinalizer},
		"the same, the node may be back": {contentObservation{C: going, Loss: taint, Marked: old}, stepNothing},
	} {
		c.Now, c.Grace, c.Watched = now, 10*time.Minute, cmp.Or(c.Watched, time.Hour)
		c.kind = ofSnapshot
		if got := decideContent(c.contentObservation); got != c.want {
			t.Errorf("%s: step %d, want %d", name, got, c.want)
		}
	}
}

func TestUses(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "web-data"}}
	used := func(name string, phase corev1.PodPhase, names string) bool {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}, Status: corev1.PodStatus{Phase: phase}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		if names != "" {
			pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: names}}
		}
		return uses(pod, claim)
	}
	if !used("a", corev1.PodRunning, "web-data") || used("b", corev1.PodSucceeded, "web-data") || used("c", corev1.PodPending, "other") || used("d", corev1.PodPending, "") {
		t.Error("only pod a uses the claim")
	}
	if used("web", corev1.PodPending, "") {
		t.Error("pod web would have a claim of that name, but this one was not made for it")
	}
	claim.OwnerReferences = []metav1.OwnerReference{{UID: "web-uid", Controller: ptr.To(true)}}
	if !used("web", corev1.PodPending, "") || used("web", corev1.PodFailed, "") {
		t.Error("pod web uses the claim that was made for it until it ends")
	}
}
