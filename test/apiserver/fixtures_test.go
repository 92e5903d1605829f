//go:build e2e

package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// node is one node of a test, with an agent that acts for it.
type node struct {
	name  string
	token string
	host  *host.Host
	env   []string // of the sidecars, beside what their pod has

	cluster controller.Cluster // of the Controller service that the sidecars call; nil: none

	mu     sync.Mutex
	writes []string // of the agent: method, path and answer
}

// newNode makes a node with a 10 GiB volume group. Its agent runs from start on.
func newNode(t *testing.T, name string) *node {
	t.Helper()
	name = strings.ToLower(t.Name()) + "-" + name
	token, err := tokenOf(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return &node{name: name, token: token, host: lvmtest.NewHost(t, lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})}
}

// RoundTrip notes what the agent writes.
func (n *node) roundTrip(next http.RoundTripper) http.RoundTripper {
	return trip(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil && r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.writes = append(n.writes, fmt.Sprintf("%s %s %d", r.Method, r.URL.Path, response.StatusCode))
		}
		return response, err
	})
}

type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (n *node) written() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.writes)
}

// restConfig is the configuration that the node's pod would have.
func (n *node) restConfig() *rest.Config {
	c := config(n.token)
	c.WrapTransport = n.roundTrip
	return c
}

// start runs the node's agent to the end of the test.
func (n *node) start(t *testing.T, health func(context.Context) ([]lvm.Condition, error)) *kube.Agent {
	t.Helper()
	client, err := kubeclient.NewClientFor(n.restConfig())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	agent := kube.NewAgent(kube.Config{Client: client, Node: n.name, Volumes: n.host, Holdings: n.host.ManagedVolumes, Health: health, Snapshots: true, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		agent.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return agent
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// soon waits until something is as it should be.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	within(t, 30*time.Second, what, holds)
}

func within(t *testing.T, most time.Duration, what string, holds func() bool) {
	t.Helper()
	wait.For(t, most, what, holds)
}

// claim makes a claim of 1 GiB in a namespace of the test's own.
func newClaim(t *testing.T, name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	t.Helper()
	class := "thin"
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	change(claim)
	claim, err := admin.CoreV1().PersistentVolumeClaims(namespace(t)).Create(t.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

var namespaces sync.Map

func namespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	if _, made := namespaces.LoadOrStore(name, true); !made {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

// bound makes a claim of 1 GiB that is bound to a volume on the node, as the scheduler, csi-provisioner and Kubernetes'
// volume controller leave it.
func (n *node) bound(t *testing.T, name string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	t.Helper()
	return n.boundOf(t, name, "thin", mode)
}

// boundOf does that for a claim of another storage class.
func (n *node) boundOf(t *testing.T, name, class string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := newClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName = &class
		c.Annotations[selected] = n.name
		c.Annotations["volume.kubernetes.io/storage-provisioner"] = driver
		c.Spec.VolumeMode = &mode
	})
	volume, err := n.host.Create(t.Context(), lvm.Spec{
		Name: "pvc-" + string(claim.UID), Claim: claim.Namespace + "/" + claim.Name, Required: lvm.GiB,
		Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin},
	})
	if err != nil {
		t.Fatal(err)
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume.Name}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, AccessModes: claim.Spec.AccessModes, VolumeMode: &mode,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver, VolumeHandle: volume.ID.String(),
		}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: topology, Operator: corev1.NodeSelectorOpIn, Values: []string{n.name}}},
		}}}},
	}}
	if _, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patchClaim(t, claim, "", fmt.Sprintf(`{"spec": {"volumeName": %q}}`, pv.Name))
	return patchClaim(t, claim, "status", `{"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}`)
}

// patchClaim changes a claim with an admin's rights.
func patchClaim(t *testing.T, claim *corev1.PersistentVolumeClaim, subresource, patch string) *corev1.PersistentVolumeClaim {
	t.Helper()
	var subresources []string
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	now, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		t.Fatal(err)
	}
	return now
}

func request(t *testing.T, claim *corev1.PersistentVolumeClaim, size string) {
	t.Helper()
	patchClaim(t, claim, "", fmt.Sprintf(`{"spec": {"resources": {"requests": {"storage": %q}}}}`, size))
}

// until waits until the claim is as it should be, and answers it.
func until(t *testing.T, claim *corev1.PersistentVolumeClaim, what string, holds func(*corev1.PersistentVolumeClaim) bool) *corev1.PersistentVolumeClaim {
	t.Helper()
	for deadline := time.Now().Add(wait.Limit(30 * time.Second)); ; time.Sleep(20 * time.Millisecond) {
		now, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if holds(now) {
			return now
		}
		if time.Now().After(deadline) {
			t.Fatalf("never: %s; the claim is\n%+v", what, now)
		}
	}
}

// eventOn waits for an event on an object and answers its message.
func eventOn(t *testing.T, namespace, name, reason string) string {
	t.Helper()
	for deadline := time.Now().Add(wait.Limit(30 * time.Second)); ; time.Sleep(20 * time.Millisecond) {
		events, err := admin.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
			if e.Reason == reason {
				return e.Message
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no event %s on %s; there are %+v", reason, name, events.Items)
		}
	}
}

func expectNoWrites(t *testing.T, n *node) {
	t.Helper()
	if writes := n.written(); len(writes) > 0 {
		t.Errorf("%s wrote what is not its own:\n%s", n.name, strings.Join(writes, "\n"))
	}
}

// expectAllowed fails if something that the agent wrote was refused. A conflict (409) is not a refusal.
func expectAllowed(t *testing.T, n *node) {
	t.Helper()
	// Others see a change before its writer has its answer, and with it the line here.
	writes := n.written()
	for deadline := time.Now().Add(wait.Limit(10 * time.Second)); len(writes) == 0 && time.Now().Before(deadline); writes = n.written() {
		time.Sleep(10 * time.Millisecond)
	}
	if len(writes) == 0 {
		t.Errorf("%s wrote nothing", n.name)
	}
	expectNoneRefused(t, n)
}

func expectNoneRefused(t *testing.T, n *node) {
	t.Helper()
	for _, w := range n.written() {
		if !strings.HasSuffix(w, " 200") && !strings.HasSuffix(w, " 409") {
			t.Errorf("%s was refused: %s", n.name, w)
		}
	}
}
