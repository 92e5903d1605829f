//go:build e2e

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/nodelvm/nodelvm/kube"
)

const (
	provisionerHolds = "external-provisioner.volume.kubernetes.io/finalizer"
	optedIn          = "thin-release"
	grace            = 3 * time.Second
)

// janitor is one running janitor, under its own account and the shipped rights.
type janitor struct {
	stop   func()
	writes atomic.Int64 // those that were not refused, events aside
}

// startJanitor runs a janitor to the end of the test, or until it has written so often: then it is cut off, as a kill
// would cut it off.
func startJanitor(t *testing.T, name string, most int64) *janitor {
	t.Helper()
	token, err := admin.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), "nodelvm-janitor", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j := &janitor{}
	ctx, cancel := context.WithCancel(context.Background())
	c := config(token.Status.Token)
	c.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return trip(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil || r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/leases") {
				return response, err
			}
			if response.StatusCode == http.StatusForbidden {
				t.Errorf("the janitor may not %s %s", r.Method, r.URL.Path)
			}
			if !strings.Contains(r.URL.Path, "/events") && response.StatusCode < 300 && j.writes.Add(1) == most {
				cancel()
			}
			return response, err
		})
	}
	client, err := kube.NewClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	worker := kube.NewJanitor(kube.JanitorConfig{Client: client, Namespace: system, Holder: name, Grace: grace, LeaseLife: 5 * time.Second, Log: log})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		worker.Run(ctx)
	}()
	j.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(j.stop)
	return j
}

// releaseClass makes the storage class that says release.
var releaseClass = sync.OnceValue(func() error {
	late := storagev1.VolumeBindingWaitForFirstConsumer
	_, err := admin.StorageV1().StorageClasses().Create(context.Background(), &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: optedIn, Annotations: map[string]string{kube.OnNodeLoss: "release"}},
		Provisioner: driver, VolumeBindingMode: &late, Parameters: map[string]string{"volumeGroup": "vg", "layout": "thin"},
	}, metav1.CreateOptions{})
	return err
})

// inUse makes a bound claim as it stands in a cluster: with its class, policy, phase and finalizers.
func (n *node) inUse(t *testing.T, name, class string, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolumeClaim {
	t.Helper()
	if err := releaseClass(); err != nil {
		t.Fatal(err)
	}
	claim := n.bound(t, name, corev1.PersistentVolumeFilesystem)
	patchVolume(t, claim.Spec.VolumeName, "", fmt.Sprintf(`{"metadata": {"finalizers": ["kubernetes.io/pv-protection", %q]},
		"spec": {"storageClassName": %q, "persistentVolumeReclaimPolicy": %q}}`, provisionerHolds, class, policy))
	patchVolume(t, claim.Spec.VolumeName, "status", `{"status": {"phase": "Bound"}}`)
	return claim
}

func patchVolume(t *testing.T, name, subresource, patch string) {
	t.Helper()
	var subresources []string
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	_, err := admin.CoreV1().PersistentVolumes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		t.Fatal(err)
	}
}

// remove deletes the Node object.
func (n *node) remove(t *testing.T) {
	t.Helper()
	if err := admin.CoreV1().Nodes().Delete(t.Context(), n.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// waitingPod makes a pod of the claim that no node has room for.
func waitingPod(t *testing.T, claim *corev1.PersistentVolumeClaim, on string) *corev1.Pod {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := admin.CoreV1().ServiceAccounts(claim.Namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	pod, err := admin.CoreV1().Pods(claim.Namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-of-" + claim.Name},
		Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Name: "c", Image: "i"}}, Volumes: []corev1.Volume{{
			Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// playVolumeController does, to the end of the test, what kube-controller-manager does to the claims of a namespace and
// their volumes: protection is lifted where nothing uses them, and a volume without its claim is Released.
func playVolumeController(t *testing.T, claims ...*corev1.PersistentVolumeClaim) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			for _, claim := range claims {
				controlVolume(ctx, claim)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

func controlVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	// What fails here is tried again; the test sees what comes of it.
	patch := func(p string) []byte { return []byte(p) }
	claims, volumes := admin.CoreV1().PersistentVolumeClaims(claim.Namespace), admin.CoreV1().PersistentVolumes()
	now, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
	if err == nil && now.UID == claim.UID && now.DeletionTimestamp != nil && !scheduledUser(ctx, claim) {
		_, _ = claims.Patch(ctx, claim.Name, types.MergePatchType, patch(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
	}
	pv, pvErr := volumes.Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if pvErr != nil {
		return
	}
	if apierrors.IsNotFound(err) && pv.Status.Phase == corev1.VolumeBound {
		_, _ = volumes.Patch(ctx, pv.Name, types.MergePatchType, patch(`{"status": {"phase": "Released"}}`), metav1.PatchOptions{}, "status")
	}
	const protection = "kubernetes.io/pv-protection"
	if pv.DeletionTimestamp != nil && pv.Status.Phase == corev1.VolumeReleased && slices.Contains(pv.Finalizers, protection) {
		rest, _ := json.Marshal(slices.DeleteFunc(slices.Clone(pv.Finalizers), func(f string) bool { return f == protection }))
		_, _ = volumes.Patch(ctx, pv.Name, types.MergePatchType,
			patch(fmt.Sprintf(`{"metadata": {"resourceVersion": %q, "finalizers": %s}}`, pv.ResourceVersion, rest)), metav1.PatchOptions{})
	}
}

func scheduledUser(ctx context.Context, claim *corev1.PersistentVolumeClaim) bool {
	pods, err := admin.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
	return err != nil || slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Spec.NodeName != "" && p.Spec.Volumes[0].PersistentVolumeClaim != nil && p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName == claim.Name
	})
}

// untilGone waits until get answers that there is no such object, or one with another UID.
func untilGone(t *testing.T, what string, get func() error) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := get()
		if apierrors.IsNotFound(err) {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%s is still there: %v", what, err)
		}
	}
}

func claimOf(t *testing.T, claim *corev1.PersistentVolumeClaim) func() error {
	return func() error {
		_, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
		return err
	}
}

func volumeOf(t *testing.T, claim *corev1.PersistentVolumeClaim) func() error {
	return func() error {
		_, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
		return err
	}
}

// expectKept fails if a claim or its volume is being deleted.
func expectKept(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	now, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
	if err != nil || now.UID != claim.UID || now.DeletionTimestamp != nil {
		t.Errorf("claim %s is not kept: %v", claim.Name, err)
	}
	expectVolumeKept(t, claim)
}

func expectVolumeKept(t *testing.T, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	t.Helper()
	pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil || pv.DeletionTimestamp != nil {
		t.Errorf("the volume of claim %s is not kept: %v", claim.Name, err)
	}
	return pv
}

// TestJanitorReleasesTheClaimsOfALostNode, and of no other one, after the grace period, and tells each step.
func TestJanitorReleasesTheClaimsOfALostNode(t *testing.T) {
	lost, out, stays := newNode(t, "lost"), newNode(t, "out"), newNode(t, "stays")
	gone := lost.inUse(t, "gone", optedIn, corev1.PersistentVolumeReclaimDelete)
	retained := lost.inUse(t, "retained", optedIn, corev1.PersistentVolumeReclaimRetain)
	tainted := out.inUse(t, "tainted", optedIn, corev1.PersistentVolumeReclaimDelete)
	other := stays.inUse(t, "other", optedIn, corev1.PersistentVolumeReclaimDelete)
	plain := lost.inUse(t, "plain", "thin", corev1.PersistentVolumeReclaimDelete)
	pod := waitingPod(t, gone, "")
	stuck := waitingPod(t, tainted, out.name)
	playVolumeController(t, gone, retained, tainted, other, plain)
	startJanitor(t, "a", 0)

	lost.remove(t)
	taintNode(t, out.name, corev1.TaintNodeOutOfService)
	from := time.Now()
	for _, claim := range []*corev1.PersistentVolumeClaim{gone, retained, tainted, plain} {
		why := untilTold(t, claim.Namespace, claim.Name, "VolumeLost")
		if !strings.Contains(why, kube.OnNodeLoss) || !strings.Contains(why, claim.Spec.VolumeName) {
			t.Errorf("claim %s is told %q", claim.Name, why)
		}
		expectKept(t, claim)
	}
	untilGone(t, "the claim", claimOf(t, gone))
	if took := time.Since(from); took < grace-time.Second { // an annotation holds whole seconds
		t.Errorf("the claim was deleted after %s", took)
	}
	untilGone(t, "the waiting pod", func() error {
		_, err := admin.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return err
	})
	untilGone(t, "the volume", volumeOf(t, gone))
	untilGone(t, "the retained volume's claim", claimOf(t, retained))
	untilGone(t, "the pod on the node out of service", func() error {
		_, err := admin.CoreV1().Pods(stuck.Namespace).Get(t.Context(), stuck.Name, metav1.GetOptions{})
		return err
	})
	untilGone(t, "the claim of the node out of service", claimOf(t, tainted))
	untilGone(t, "its volume", volumeOf(t, tainted))
	untilTold(t, gone.Namespace, gone.Name, "ReleasedClaim")
	untilTold(t, tainted.Namespace, tainted.Name, "ReleasedPod")
	untilTold(t, "default", gone.Spec.VolumeName, "ReleasedVolume")
	untilTold(t, "default", retained.Spec.VolumeName, "AbandonedVolume")
	if pv := expectVolumeKept(t, retained); pv.Annotations["nodelvm.io/abandoned"] == "" {
		t.Errorf("the retained volume has the annotations %v", pv.Annotations)
	}
	expectKept(t, other)
	expectKept(t, plain)
}

func taintNode(t *testing.T, name, key string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec": {"taints": [{"key": %q, "value": "nodeshutdown", "effect": "NoExecute"}]}}`, key)
	if _, err := admin.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestJanitorKeeps what may come back, what is somebody else's, and what is in use.
func TestJanitorKeeps(t *testing.T) {
	silent, back, lost, runs := newNode(t, "silent"), newNode(t, "back"), newNode(t, "lost"), newNode(t, "runs")
	unreachable := silent.inUse(t, "unreachable", optedIn, corev1.PersistentVolumeReclaimDelete)
	returning := back.inUse(t, "returning", optedIn, corev1.PersistentVolumeReclaimDelete)
	used := lost.inUse(t, "used", optedIn, corev1.PersistentVolumeReclaimDelete)
	foreign := lost.inUse(t, "foreign", optedIn, corev1.PersistentVolumeReclaimDelete)
	replaceDriver(t, foreign)
	waitingPod(t, used, runs.name)
	playVolumeController(t, unreachable, returning, used)
	startJanitor(t, "a", 0)

	taintNode(t, silent.name, corev1.TaintNodeUnreachable)
	back.remove(t)
	lost.remove(t)
	untilTold(t, returning.Namespace, returning.Name, "VolumeLost")
	if _, err := admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: back.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	untilTold(t, returning.Namespace, returning.Name, "VolumeLostEnded")
	if why := untilTold(t, used.Namespace, used.Name, "VolumeInUse"); !strings.Contains(why, "pod-of-used") || !strings.Contains(why, runs.name) {
		t.Errorf("the event says %q", why)
	}
	time.Sleep(grace) // time to do the wrong thing
	for _, claim := range []*corev1.PersistentVolumeClaim{unreachable, returning, used, foreign} {
		expectKept(t, claim)
	}
	if pv := expectVolumeKept(t, returning); pv.Annotations["nodelvm.io/lost-since"] != "" {
		t.Errorf("a node that is back is still noted as lost: %v", pv.Annotations)
	}
	if pv := expectVolumeKept(t, foreign); pv.Annotations["nodelvm.io/lost-since"] != "" {
		t.Errorf("another driver's volume was annotated: %v", pv.Annotations)
	}
}

// replaceDriver makes the claim's volume another driver's.
func replaceDriver(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	pv := expectVolumeKept(t, claim)
	patchVolume(t, pv.Name, "", `{"metadata": {"finalizers": null}}`)
	if err := admin.CoreV1().PersistentVolumes().Delete(t.Context(), pv.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pv.ObjectMeta = metav1.ObjectMeta{Name: pv.Name}
	pv.Spec.CSI.Driver = "example.com"
	if _, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patchVolume(t, pv.Name, "status", `{"status": {"phase": "Bound"}}`)
}

// TestJanitorClearsWhatUsersDeleted: without any annotation, what only a removed node would remove; but not while the
// node is merely out of service.
func TestJanitorClearsWhatUsersDeleted(t *testing.T) {
	lost, out, stays := newNode(t, "lost"), newNode(t, "out"), newNode(t, "stays")
	deleted := lost.inUse(t, "deleted", "thin", corev1.PersistentVolumeReclaimDelete)
	kept := out.inUse(t, "kept", "thin", corev1.PersistentVolumeReclaimDelete)
	retained := lost.inUse(t, "retained", "thin", corev1.PersistentVolumeReclaimRetain)
	stuck := newClaim(t, "stuck", func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = lost.name })
	theirs := newClaim(t, "theirs", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations[selected], c.Spec.StorageClassName = lost.name, new(string)
	})
	fine := newClaim(t, "fine", func(c *corev1.PersistentVolumeClaim) { c.Annotations[selected] = stays.name })
	playVolumeController(t, deleted, kept, retained)
	lost.remove(t)
	taintNode(t, out.name, corev1.TaintNodeOutOfService)
	for _, claim := range []*corev1.PersistentVolumeClaim{deleted, kept, retained} {
		if err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		untilGone(t, "the claim", claimOf(t, claim))
	}
	startJanitor(t, "a", 0)
	untilGone(t, "the deleted claim's volume", volumeOf(t, deleted))
	until(t, stuck, "freed", selectedIs(""))
	untilTold(t, stuck.Namespace, stuck.Name, "FreedClaim")
	time.Sleep(grace) // time to do the wrong thing
	expectVolumeKept(t, kept)
	if pv := expectVolumeKept(t, retained); pv.Annotations["nodelvm.io/abandoned"] != "" {
		t.Errorf("a volume that its user gave up is noted as abandoned: %v", pv.Annotations)
	}
	until(t, theirs, "left alone", selectedIs(lost.name))
	until(t, fine, "left alone", selectedIs(stays.name))
}

// TestJanitorCanBeCutOffAnywhere kills it after each of its writes; the next one goes on. The grace period is not begun anew.
func TestJanitorCanBeCutOffAnywhere(t *testing.T) {
	lost := newNode(t, "lost")
	claim := lost.inUse(t, "data", optedIn, corev1.PersistentVolumeReclaimDelete)
	waitingPod(t, claim, "")
	playVolumeController(t, claim)
	lost.remove(t)
	marks := map[string]bool{}
	for cuts := 0; ; cuts++ {
		if apierrors.IsNotFound(volumeOf(t, claim)()) {
			if cuts < 4 { // mark, claim, volume, finalizer; the pod may go with its claim
				t.Errorf("all was done in %d writes", cuts)
			}
			break
		}
		if cuts > 8 {
			t.Fatal("it does not come to an end")
		}
		j := startJanitor(t, fmt.Sprintf("cut-%d", cuts), 1)
		for deadline := time.Now().Add(30 * time.Second); j.writes.Load() == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("janitor %d does nothing", cuts)
			}
		}
		j.stop()
		if pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{}); err == nil {
			marks[pv.Annotations["nodelvm.io/lost-since"]] = true
		}
	}
	if len(marks) != 1 {
		t.Errorf("the loss was noted at different times: %v", marks)
	}
	untilGone(t, "the claim", claimOf(t, claim))
}

// TestOneJanitorActsAtATime: the second one waits for the lease, and takes it over when the first ends.
func TestOneJanitorActsAtATime(t *testing.T) {
	first, second := newNode(t, "first"), newNode(t, "second")
	one := first.inUse(t, "one", "thin", corev1.PersistentVolumeReclaimDelete)
	two := second.inUse(t, "two", "thin", corev1.PersistentVolumeReclaimDelete)
	a := startJanitor(t, "a", 0)
	first.remove(t)
	untilTold(t, one.Namespace, one.Name, "VolumeLost")
	b := startJanitor(t, "b", 0)
	time.Sleep(6 * time.Second) // longer than the lease lasts
	if b.writes.Load() > 0 {
		t.Errorf("both act: %d writes", b.writes.Load())
	}
	a.stop()
	second.remove(t)
	untilTold(t, two.Namespace, two.Name, "VolumeLost")
	if b.writes.Load() == 0 {
		t.Error("the second one did nothing")
	}
}

// TestJanitorAndSnapshots: a lost snapshot is told of; what its user deleted does not stay for ever; one whose class says
// release is deleted.
func TestJanitorAndSnapshots(t *testing.T) {
	lost := newNode(t, "lost")
	claim := lost.inUse(t, "data", "thin", corev1.PersistentVolumeReclaimDelete)
	post := func(path, body string) {
		t.Helper()
		if err := admin.RESTClient().Post().AbsPath(path).Body([]byte(body)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	const group = "/apis/snapshot.storage.k8s.io/v1"
	post(group+"/volumesnapshotclasses", fmt.Sprintf(`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
		"metadata": {"name": "snap-release", "annotations": {%q: "release"}}, "driver": %q, "deletionPolicy": "Delete"}`, kube.OnNodeLoss, driver))
	for name, class := range map[string]string{"kept": "snap-keep", "deleted": "snap-keep", "released": "snap-release"} {
		post(fmt.Sprintf("%s/namespaces/%s/volumesnapshots", group, claim.Namespace), fmt.Sprintf(`{"apiVersion": "snapshot.storage.k8s.io/v1",
			"kind": "VolumeSnapshot", "metadata": {"name": %q}, "spec": {"source": {"persistentVolumeClaimName": "data"}}}`, name))
		var snapshot metav1.PartialObjectMetadata
		text, err := admin.RESTClient().Get().AbsPath(group, "namespaces", claim.Namespace, "volumesnapshots", name).Do(t.Context()).Raw()
		if err != nil || json.Unmarshal(text, &snapshot) != nil {
			t.Fatal(err)
		}
		post(contents, fmt.Sprintf(`{"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": {"name": "janitor-%s",
			"labels": {"snapshot.storage.kubernetes.io/managed-by": %q}, "finalizers": ["snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"]},
			"spec": {"driver": %q, "deletionPolicy": "Delete", "source": {"volumeHandle": "a/b"}, "volumeSnapshotClassName": %q,
			"volumeSnapshotRef": {"namespace": %q, "name": %q, "uid": %q}}}`, name, lost.name, driver, class, claim.Namespace, name, snapshot.UID))
	}
	lost.remove(t)
	remove := func(path ...string) error {
		return admin.RESTClient().Delete().AbsPath(path...).Do(t.Context()).Error()
	}
	there := func(path ...string) func() error {
		return func() error { return admin.RESTClient().Get().AbsPath(path...).Do(t.Context()).Error() }
	}
	if err := remove(contents, "janitor-deleted"); err != nil {
		t.Fatal(err)
	}
	startJanitor(t, "a", 0)
	untilTold(t, claim.Namespace, "kept", "SnapshotLost")
	untilGone(t, "the released snapshot", there(group, "namespaces", claim.Namespace, "volumesnapshots", "released"))
	untilTold(t, claim.Namespace, "released", "ReleasedSnapshot")
	untilGone(t, "the deleted content", there(contents, "janitor-deleted"))
	if err := remove(contents, "janitor-released"); err != nil { // as the snapshot controller does
		t.Fatal(err)
	}
	untilGone(t, "the released content", there(contents, "janitor-released"))
	for _, path := range [][]string{{contents, "janitor-kept"}, {group, "namespaces", claim.Namespace, "volumesnapshots", "kept"}} {
		if err := there(path...)(); err != nil {
			t.Errorf("%v is not kept: %v", path, err)
		}
	}
	_ = remove(contents, "janitor-kept") // what it is held by is for no later test
}
