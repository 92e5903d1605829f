package kube

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func tainted(key string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoExecute}}},
	}
}

// TestOnlyProvenLossesCount: a node that does not answer may return with its disks at any time.
func TestOnlyProvenLossesCount(t *testing.T) {
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
		if c.node == nil || c.group != "" {
			continue
		}
		if got, _ := keepNode(stripNode(c.node)); got != c.want {
			t.Errorf("%s: the watch keeps %q, want %q", name, got, c.want)
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
	abandoned.Annotations = map[string]string{annAbandoned: "2026-01-02T03:04:05Z"}
	held, free := released.DeepCopy(), released.DeepCopy()
	held.DeletionTimestamp, held.Finalizers = deleted, []string{"kubernetes.io/pv-protection", finalizerProvisioner}
	free.DeletionTimestamp = deleted
	never := volume(corev1.VolumeAvailable, corev1.PersistentVolumeReclaimDelete)
	never.Spec.ClaimRef = nil
	kept := volume(corev1.VolumeReleased, corev1.PersistentVolumeReclaimRetain)
	kept.Annotations = map[string]string{annPolicy: "Delete"}
	old := now.Add(-time.Hour)
	waits, runsThere, runsElsewhere := podOn("", corev1.PodPending, false), podOn("n", corev1.PodRunning, false), podOn("m", corev1.PodRunning, false)
	for name, c := range map[string]struct {
		sight
		want step
	}{
		"nothing is lost":                  {sight{pv: bound, claim: claim, optIn: true}, stepNothing},
		"back in time":                     {sight{pv: bound, claim: claim, optIn: true, marked: now}, stepForgive},
		"back late":                        {sight{pv: bound, claim: claim, optIn: true, marked: old}, stepForgive},
		"first seen":                       {sight{loss: gone, pv: bound, claim: claim, optIn: true}, stepMark},
		"within the grace period":          {sight{loss: gone, pv: bound, claim: claim, optIn: true, marked: now}, stepTell},
		"released, within it":              {sight{loss: gone, pv: released, optIn: true, marked: now}, stepTell},
		"not opted in":                     {sight{loss: gone, pv: bound, claim: claim, marked: old}, stepTell},
		"due":                              {sight{loss: gone, pv: bound, claim: claim, optIn: true, marked: old}, stepDeleteClaim},
		"due, but not seen for long":       {sight{loss: gone, pv: bound, claim: claim, optIn: true, marked: old, began: now.Add(-9 * time.Minute)}, stepTell},
		"due, and seen for long":           {sight{loss: gone, pv: bound, claim: claim, optIn: true, marked: old, began: now.Add(-10 * time.Minute)}, stepDeleteClaim},
		"begun by another one":             {sight{loss: gone, pv: bound, claim: going, optIn: true, marked: old, began: now}, stepAwait},
		"kept while its claim was deleted": {sight{loss: gone, pv: kept, optIn: true, marked: old}, stepDeletePV},
		"kept so, and back":                {sight{pv: kept}, stepForgive},
		"due by its taint":                 {sight{loss: taint, pv: bound, claim: claim, optIn: true, marked: old}, stepDeleteClaim},
		"due, its pod on the node":         {sight{loss: gone, pv: bound, claim: claim, optIn: true, marked: old, users: []corev1.Pod{runsThere}}, stepDeleteClaim},
		"a pod runs elsewhere":             {sight{loss: gone, pv: bound, claim: claim, optIn: true, marked: old, users: []corev1.Pod{waits, runsElsewhere}}, stepInUse},
		"a pod runs where a group is lost": {sight{loss: group, pv: bound, claim: claim, optIn: true, marked: old, users: []corev1.Pod{runsThere}}, stepInUse},
		"a pod cannot start there":         {sight{loss: group, pv: bound, claim: claim, optIn: true, marked: old, users: []corev1.Pod{podOn("n", corev1.PodPending, false)}}, stepDeleteClaim},
		"the claim goes, a pod waits":      {sight{loss: gone, pv: bound, claim: going, optIn: true, marked: old, users: []corev1.Pod{waits}}, stepDeletePods},
		"a pod ends where nobody ends it":  {sight{loss: taint, pv: bound, claim: going, optIn: true, marked: old, users: []corev1.Pod{podOn("n", corev1.PodRunning, true)}}, stepDeletePods},
		"the kubelet ends a pod":           {sight{loss: group, pv: bound, claim: going, optIn: true, marked: old, users: []corev1.Pod{podOn("n", corev1.PodRunning, true)}}, stepAwait},
		"the claim goes":                   {sight{loss: gone, pv: bound, claim: going, optIn: true, marked: old}, stepAwait},
		"a user deleted the claim":         {sight{loss: gone, pv: released, marked: old}, stepDeletePV},
		"the same, the node may be back":   {sight{loss: taint, pv: released, marked: old}, stepNothing},
		"the claim is gone":                {sight{loss: taint, pv: released, optIn: true, marked: old}, stepDeletePV},
		"the claim is gone, not yet seen":  {sight{loss: gone, pv: bound, optIn: true, marked: old}, stepNothing},
		"the volume goes":                  {sight{loss: gone, pv: held, optIn: true, marked: old}, stepUnholdPV},
		"nothing holds it":                 {sight{loss: gone, pv: free, optIn: true, marked: old}, stepNothing},
		"retained":                         {sight{loss: gone, pv: retained, optIn: true, marked: old}, stepAbandon},
		"retained, known":                  {sight{loss: gone, pv: abandoned, optIn: true, marked: old}, stepNothing},
		"retained, not opted in":           {sight{loss: gone, pv: retained, marked: old}, stepNothing},
		"a broken chain, due":              {sight{loss: gone, pv: bound, claim: claim, broken: errors.New("forged"), optIn: true, marked: old}, stepTellBroken},
		"a broken chain, released":         {sight{loss: gone, pv: released, broken: errors.New("forged"), optIn: true, marked: old}, stepTellBroken},
		"a broken chain, its finalizer":    {sight{loss: gone, pv: held, broken: errors.New("forged"), optIn: true, marked: old}, stepTellBroken},
		"a broken chain, retained":         {sight{loss: gone, pv: retained, broken: errors.New("forged"), optIn: true, marked: old}, stepTellBroken},
		"a broken chain, back":             {sight{pv: kept, broken: errors.New("forged"), marked: old}, stepTellBroken},
		"never bound":                      {sight{loss: gone, pv: never, optIn: true, marked: old}, stepNothing},
	} {
		c.now, c.grace = now, 10*time.Minute
		if got := decide(c.sight); got != c.want {
			t.Errorf("%s: step %d, want %d", name, got, c.want)
		}
	}
}

func TestDecideContent(t *testing.T) {
	now, gone, taint := time.Now(), loss{kind: lossGone}, loss{kind: lossTaint}
	old, there, going := now.Add(-time.Hour), &content{}, &content{}
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: now}, []string{finalizerContent}
	for name, c := range map[string]struct {
		contentSight
		want step
	}{
		"not lost":                       {contentSight{c: there}, stepNothing},
		"back":                           {contentSight{c: there, marked: old}, stepForgive},
		"first seen":                     {contentSight{c: there, loss: gone, optIn: true}, stepMark},
		"within the grace period":        {contentSight{c: going, loss: gone, optIn: true, marked: now}, stepTell},
		"not opted in":                   {contentSight{c: there, loss: gone, marked: old}, stepTell},
		"due":                            {contentSight{c: there, bound: &snapshot{}, loss: gone, optIn: true, marked: old}, stepDeleteClaim},
		"due, its snapshot is gone":      {contentSight{c: there, loss: gone, optIn: true, marked: old}, stepTell},
		"a broken chain":                 {contentSight{c: going, bound: &snapshot{}, broken: errors.New("forged"), loss: gone, optIn: true, marked: old}, stepTellBroken},
		"due, but not seen for long":     {contentSight{c: there, loss: gone, optIn: true, marked: old, began: now}, stepTell},
		"a user deleted it":              {contentSight{c: going, loss: gone, marked: old}, stepUnholdPV},
		"the same, the node may be back": {contentSight{c: going, loss: taint, marked: old}, stepNothing},
	} {
		c.now, c.grace = now, 10*time.Minute
		if got := decideContent(c.contentSight); got != c.want {
			t.Errorf("%s: step %d, want %d", name, got, c.want)
		}
	}
}

func TestUsersOf(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "web-data"}}
	named := func(name string, phase corev1.PodPhase, v corev1.VolumeSource) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data", VolumeSource: v}}}}
	}
	by := func(claim string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	}
	ephemeral := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	pods := []corev1.Pod{
		named("a", corev1.PodRunning, by("web-data")), named("b", corev1.PodSucceeded, by("web-data")),
		named("c", corev1.PodPending, by("other")), named("web", corev1.PodPending, ephemeral), named("d", corev1.PodPending, ephemeral),
	}
	got := ""
	for _, pod := range usersOf(pods, claim) {
		got += pod.Name + " "
	}
	if got != "a " || len(pods) != 5 || pods[1].Name != "b" {
		t.Errorf("users %q of %d pods: web would have a claim of that name, but this one was not made for it", got, len(pods))
	}
	pods[3].UID = "web-uid"
	claim.OwnerReferences = []metav1.OwnerReference{{UID: "web-uid", Controller: ptr.To(true)}}
	if users := usersOf(pods, claim); len(users) != 2 || users[1].Name != "web" {
		t.Errorf("users of a claim that was made for web: %+v", users)
	}
}
