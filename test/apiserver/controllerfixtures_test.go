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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodelvm/nodelvm/api"
	kubecluster "github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/nodeloss"
)

const (
	provisionerHolds = "external-provisioner.volume.kubernetes.io/finalizer"
	optedIn          = "thin-release"
	grace            = 5 * time.Second // what the tests check within it must happen on a slow machine too
)

// runningController is one running controller, under its own account and the shipped rights.
type runningController struct {
	stop   func()
	writes atomic.Int64 // those that were not refused, events aside
}

// part is one of the parts that run beside the one for lost nodes.
type part func(context.Context, *kubecluster.Objects)

// clients are those of a running controller.
type clients struct {
	*kubeclient.Client
	clientset kubernetes.Interface
	events    *kubeclient.EventRecorder
	log       *slog.Logger
}

// startController runs the part for lost nodes, and others beside it, to the end of the test or until it is stopped.
func startController(t *testing.T, name string, beside ...func(*clients) part) *runningController {
	t.Helper()
	j := &runningController{}
	c := config(tokenOfAccount(t, "nodelvm-controller"))
	c.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return trip(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil || r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/leases") {
				return response, err
			}
			if response.StatusCode == http.StatusForbidden {
				t.Errorf("nodelvm-controller may not %s %s", r.Method, r.URL.Path)
			}
			if !strings.Contains(r.URL.Path, "/events") && response.StatusCode < 300 {
				j.writes.Add(1)
			}
			return response, err
		})
	}
	client, err := kubeclient.NewClientFor(c)
	must(t, err)
	clientset, err := kubecluster.NewClientset(c)
	must(t, err)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	k := &clients{client, clientset, &kubeclient.EventRecorder{Client: client, Counts: map[string]kubeclient.EventCount{}}, log}
	losses := &nodeloss.Controller{Client: client, Events: k.events, Losses: &nodeloss.Losses{}, Grace: grace, Log: log}
	parts := []func(context.Context, *kubecluster.Objects){losses.Run}
	for _, newPart := range beside {
		parts = append(parts, newPart(k))
	}
	election := &kubecluster.Election{Leases: clientset.CoordinationV1(), Namespace: system, Holder: name, Lasts: 5 * time.Second, Record: losses.Losses, Log: log}
	j.stop = inBackground(t, func(ctx context.Context) {
		if err := election.Run(ctx, func(ctx context.Context) {
			kubecluster.NewObjects(clientset, client, system, log).Run(ctx, parts...)
		}); err != nil {
			t.Error(err)
		}
	})
	return j
}

// releaseClass makes the storage class that says release.
var releaseClass = sync.OnceValue(func() error {
	class := classOf(optedIn, map[string]string{"volumeGroup": "vg", "layout": "thin"})
	class.Annotations = map[string]string{api.AnnotationOnNodeLoss: "release"}
	_, err := admin.StorageV1().StorageClasses().Create(context.Background(), class, metav1.CreateOptions{})
	return err
})

// inUse makes a bound claim as in a cluster: with its class, policy, phase and finalizers.
func (n *node) inUse(t *testing.T, name, class string, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolumeClaim {
	t.Helper()
	must(t, releaseClass())
	claim := n.boundOf(t, name, class, corev1.PersistentVolumeFilesystem)
	patchVolume(t, claim.Spec.VolumeName, "", fmt.Sprintf(`{"metadata": {"finalizers": ["kubernetes.io/pv-protection", %q]},
		"spec": {"persistentVolumeReclaimPolicy": %q}}`, provisionerHolds, policy))
	patchVolume(t, claim.Spec.VolumeName, "status", `{"status": {"phase": "Bound"}}`)
	return claim
}

// remove deletes the Node object.
func (n *node) remove(t *testing.T) {
	t.Helper()
	must(t, admin.CoreV1().Nodes().Delete(t.Context(), n.name, metav1.DeleteOptions{}))
}

// waitingPod makes a pod of the claim that no node has room for.
func waitingPod(t *testing.T, claim *corev1.PersistentVolumeClaim, on string) *corev1.Pod {
	t.Helper()
	makeAccount(t, claim.Namespace)
	pod, err := admin.CoreV1().Pods(claim.Namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-of-" + claim.Name},
		Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Name: "c", Image: "i"}}, Volumes: []corev1.Volume{{
			Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}},
		}}},
	}, metav1.CreateOptions{})
	must(t, err)
	return pod
}

// playVolumeController does, to the end of the test, what kube-controller-manager does to the claims of a namespace and
// their volumes: protection is lifted where nothing uses them, and a volume without its claim is Released.
func playVolumeController(t *testing.T, claims ...*corev1.PersistentVolumeClaim) {
	inBackground(t, func(ctx context.Context) {
		for ctx.Err() == nil {
			for _, claim := range claims {
				controlVolume(ctx, claim)
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
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
	soon(t, what+" is gone", func() bool {
		err := get()
		if !apierrors.IsNotFound(err) {
			must(t, err)
		}
		return err != nil
	})
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

func podThere(t *testing.T, pod *corev1.Pod) func() error {
	return func() error {
		_, err := admin.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
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

func taintNode(t *testing.T, name, key string) {
	t.Helper()
	patchNode(t, name, fmt.Sprintf(`{"spec": {"taints": [{"key": %q, "value": "nodeshutdown", "effect": "NoExecute"}]}}`, key))
}

func patchNode(t *testing.T, name, patch string) {
	t.Helper()
	_, err := admin.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
}

// replaceDriver makes the claim's volume another driver's.
func replaceDriver(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	pv := expectVolumeKept(t, claim)
	dropVolume(t, pv.Name)
	pv.ObjectMeta = metav1.ObjectMeta{Name: pv.Name}
	pv.Spec.CSI.Driver = "example.com"
	_, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	must(t, err)
	patchVolume(t, pv.Name, "status", `{"status": {"phase": "Bound"}}`)
}
