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
	"k8s.io/client-go/kubernetes"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// node is one node of a test, with an agent that acts for it.
type node struct {
	name  string
	token string
	host  *host.Host
	env   []string // of the sidecars, beside what their pod has

	cluster controller.Cluster    // of the controller service; nil: it places each volume alone
	copies  controller.FullCopies // of the same; nil: it copies nothing of other nodes

	mu     sync.Mutex
	writes []string // of the agent: method, path and answer
}

// newNode makes a node with a 10 GiB volume group. Its agent runs from start on.
func newNode(t *testing.T, name string) *node {
	t.Helper()
	return newNodeNamed(t, strings.ToLower(t.Name())+"-"+name)
}

func newNodeNamed(t *testing.T, name string) *node {
	t.Helper()
	token, err := tokenOf(t.Context(), name)
	must(t, err)
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

// client has the rights of the node's pod.
func (n *node) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config(n.token))
	must(t, err)
	return client
}

// agent is one that does not run.
func (n *node) agent(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper, change ...func(*kube.Config)) *kube.Agent {
	t.Helper()
	c := config(n.token)
	c.WrapTransport = wrap
	client, err := kubeclient.NewClientFor(c)
	must(t, err)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	cfg := kube.Config{Client: client, Node: n.name, Volumes: n.host, Holdings: n.host.ManagedVolumes, Snapshots: true, Log: log}
	for _, f := range change {
		f(&cfg)
	}
	return kube.NewAgent(cfg)
}

// start runs the node's agent to the end of the test.
func (n *node) start(t *testing.T, change ...func(*kube.Config)) *kube.Agent {
	t.Helper()
	agent := n.agent(t, n.roundTrip, change...)
	inBackground(t, agent.Run)
	return agent
}

// inBackground runs something to the end of the test, or until it is stopped.
func inBackground(t *testing.T, run func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	return stop
}

var must = check.Must

// soon waits until something is as it should be.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	wait.For(t, 30*time.Second, what, holds)
}

// newClaim makes a claim of 1 GiB in a namespace of the test's own.
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
	must(t, err)
	return claim
}

var namespaces sync.Map

func namespace(t *testing.T) string {
	t.Helper()
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	if _, made := namespaces.LoadOrStore(name, true); !made {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := admin.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
		must(t, err)
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
	volume := n.create(t, "pvc-"+string(claim.UID), claim.Namespace+"/"+claim.Name)
	_, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volume.Name}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, AccessModes: claim.Spec.AccessModes, VolumeMode: &mode,
		Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		ClaimRef:               &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: volume.ID.String()}},
		NodeAffinity:           affinityTo(n.name),
	}}, metav1.CreateOptions{})
	must(t, err)
	return bindTo(t, claim, volume.Name)
}

// create makes a thin logical volume of 1 GiB.
func (n *node) create(t *testing.T, name, claim string) lvm.Volume {
	t.Helper()
	volume, err := n.host.Create(t.Context(), lvm.Spec{Name: name, Claim: claim, Required: lvm.GiB, Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin}})
	must(t, err)
	return volume
}

// boundVolume is the volume of a bound claim.
func boundVolume(t *testing.T, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, lvm.ID) {
	t.Helper()
	pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	must(t, err)
	id, err := lvm.ParseID(pv.Spec.CSI.VolumeHandle)
	must(t, err)
	return pv, id
}

// until waits until the claim is as it should be, and answers it.
func until(t *testing.T, claim *corev1.PersistentVolumeClaim, what string, holds func(*corev1.PersistentVolumeClaim) bool) (now *corev1.PersistentVolumeClaim) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the claim is\n%+v", now)
		}
	}()
	soon(t, claim.Name+": "+what, func() bool {
		var err error
		now, err = admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
		must(t, err)
		return holds(now)
	})
	return now
}

// eventOn waits for an event on an object and answers its message.
func eventOn(t *testing.T, namespace, name, reason string) string {
	t.Helper()
	return eventSays(t, namespace, name, reason, "", "")
}

// eventSays waits for an event of a type, "" for any, that contains the words, and answers its message. nodelvm-controller writes some only half a
// minute after their cause.
func eventSays(t *testing.T, namespace, name, reason, kind, words string) (message string) {
	t.Helper()
	wait.For(t, time.Minute, fmt.Sprintf("event %s %s on %s: %s", kind, reason, name, words), func() bool {
		return slices.ContainsFunc(eventsOn(t, namespace, name), func(e corev1.Event) bool {
			message = e.Message
			return e.Reason == reason && (kind == "" || e.Type == kind) && strings.Contains(message, words)
		})
	})
	return message
}

func eventsOn(t *testing.T, namespace, name string) []corev1.Event {
	t.Helper()
	list, err := admin.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	must(t, err)
	return list.Items
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
	soon(t, n.name+" writes", func() bool { return len(n.written()) > 0 })
	for _, w := range n.written() {
		if !strings.HasSuffix(w, " 200") && !strings.HasSuffix(w, " 409") {
			t.Errorf("%s was refused: %s", n.name, w)
		}
	}
}
