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

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/janitor"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/nodegroup"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

const (
	provisionerHolds = "external-provisioner.volume.kubernetes.io/finalizer"
	optedIn          = "thin-release"
	grace            = 5 * time.Second // what the tests check within it must happen on a slow machine too
)

// runningJanitor is one running janitor, under its own account and the shipped rights.
type runningJanitor struct {
	stop   func()
	writes atomic.Int64 // those that were not refused, events aside
}

// startJanitor runs a janitor to the end of the test, or until it has written so often: then it is cut off, as a kill
// would cut it off.
func startJanitor(t *testing.T, name string, most int64) *runningJanitor {
	t.Helper()
	return startJanitorBeside(t, name, most)
}

// startPublisher runs a janitor that publishes the capacity of node groups.
func startPublisher(t *testing.T, groups []nodegroup.Group) *runningJanitor {
	t.Helper()
	return startJanitorBeside(t, "publisher", -1, func(client *kubeclient.Client, log *slog.Logger) func(context.Context) {
		return (&nodegroup.Publisher{Client: client, Namespace: system, Groups: groups, Log: log}).Run
	})
}

func startJanitorBeside(t *testing.T, name string, most int64, beside ...func(*kubeclient.Client, *slog.Logger) func(context.Context)) *runningJanitor {
	t.Helper()
	token, err := admin.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), "nodelvm-janitor", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	j := &runningJanitor{}
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
	client, err := kubeclient.NewClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	var parts []func(context.Context)
	for _, part := range beside {
		parts = append(parts, part(client, log))
	}
	worker := janitor.NewJanitor(janitor.JanitorConfig{Client: client, Namespace: system, Holder: name, Grace: grace, LeaseLife: 5 * time.Second, Beside: parts, Log: log})
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
		ObjectMeta:  metav1.ObjectMeta{Name: optedIn, Annotations: map[string]string{api.AnnotationOnNodeLoss: "release"}},
		Provisioner: driver, VolumeBindingMode: &late, Parameters: map[string]string{"volumeGroup": "vg", "layout": "thin"},
	}, metav1.CreateOptions{})
	return err
})

// inUse makes a bound claim as in a cluster: with its class, policy, phase and finalizers.
func (n *node) inUse(t *testing.T, name, class string, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolumeClaim {
	t.Helper()
	if err := releaseClass(); err != nil {
		t.Fatal(err)
	}
	claim := n.boundOf(t, name, class, corev1.PersistentVolumeFilesystem)
	patchVolume(t, claim.Spec.VolumeName, "", fmt.Sprintf(`{"metadata": {"finalizers": ["kubernetes.io/pv-protection", %q]},
		"spec": {"persistentVolumeReclaimPolicy": %q}}`, provisionerHolds, policy))
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
	for deadline := time.Now().Add(wait.Limit(30 * time.Second)); ; time.Sleep(20 * time.Millisecond) {
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

func taintNode(t *testing.T, name, key string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec": {"taints": [{"key": %q, "value": "nodeshutdown", "effect": "NoExecute"}]}}`, key)
	if _, err := admin.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
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
