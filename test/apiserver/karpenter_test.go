//go:build e2e

package apiserver

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/test/lab"
)

// TestKarpenter: Karpenter does not know storage capacity. It nominates a node for a pod that fits there but for its volume, and
// adds none. It adds a node for a pod that required anti-affinity or its requests keep from the node; the volume is created there.
// A pod whose volume exists waits for the volume's node. Each two pods share a NodePool and a node, so that the second pod shows
// that Karpenter could have added a node for the first one.
func TestKarpenter(t *testing.T) {
	dir := t.TempDir()
	startControllers(t, dir)
	startKarpenter(t, dir)
	newNodePool(t, "roomy")
	newNodePool(t, "full")

	plain := newReplica(t, "plain", "roomy", "1", false)
	soon(t, "the scheduler refuses the pod for its volume", func() bool { return isRefused(t, plain) })
	expectSaid(t, plain, "Nominated", "Pod should schedule on: node/roomy")
	expectNodeClaims(t, "roomy", 0)
	returned := newReturningReplica(t, "returned", "full", "3")
	expectSaid(t, returned, "FailedScheduling", `label "topology.nodelvm.io/node" does not have known values`)
	expectNodeClaims(t, "full", 0)

	apart := newReplica(t, "apart", "roomy", "1", true)
	soon(t, "there is a node for the pod that must be apart", func() bool { return len(nodeClaims(t, "roomy")) > 0 })
	large := newReplica(t, "large", "full", "3", false)
	soon(t, "there is a node for the pod with large requests", func() bool { return len(nodeClaims(t, "full")) > 0 })
	for pod, pool := range map[string]string{apart: "roomy", large: "full"} {
		// Karpenter considers all pending pods each time, so the first two have had another chance.
		added := expectNodeClaims(t, pool, 1)
		expectSaid(t, pod, "Nominated", "Pod should schedule on: nodeclaim/"+added)
	}

	added := startAddedNode(t, "full")
	soon(t, "the volume is created on the added node", func() bool { return selectedNode(t, large) == added })
	now := int64(0)
	must(t, admin.CoreV1().Pods(namespace(t)).Delete(t.Context(), "resident-of-full", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	soon(t, "the pod returns to its volume", func() bool { return nodeOf(t, returned) == "full" })
	publishCapacity(t, "roomy", "thin", "10Gi")
	soon(t, "the pod lacked nothing but capacity", func() bool { return selectedNode(t, plain) == "roomy" })
}

// startKarpenter runs Karpenter, with its provider for tests, until the test ends.
func startKarpenter(t *testing.T, dir string) {
	t.Helper()
	l, err := lab.Open("")
	must(t, err)
	karpenter, crds, err := l.Karpenter(t.Context())
	must(t, err)
	for _, file := range crds {
		runKubectl(t, nil, "create", "-f", file)
		runKubectl(t, nil, "wait", "--for=condition=Established", "-f", file)
	}
	runKubectl(t, []byte(`{"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}`), "create", "-f", "-")
	t.Setenv("KUBECONFIG", filepath.Join(dir, "admin"))
	// 0: any free port
	stop, err := start(dir, karpenter, "--disable-leader-election=true", "--metrics-port=0", "--health-probe-port=0")
	must(t, err)
	t.Cleanup(func() {
		stop()
		if log, err := os.ReadFile(filepath.Join(dir, "karpenter.log")); t.Failed() {
			t.Logf("Karpenter's log: %s %v", log, err)
		}
	})
}

// newNodePool makes a NodePool, and a node with its labels that a pod with 6 of the 8 CPUs is on. The largest volume there is 1 GiB.
func newNodePool(t *testing.T, name string) {
	t.Helper()
	makeNode(t, name, map[string]string{"pool": name, topology: name, corev1.LabelHostname: name})
	publishCapacity(t, name, "thin", "1Gi")
	resident := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "resident-of-" + name}, Spec: corev1.PodSpec{
		NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "c"}},
	}}
	newDatabasePod(t, resident, name, "6")
	runKubectl(t, fmt.Appendf(nil, `{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": %[1]q}, "spec": {
		"disruption": {"consolidateAfter": "Never"}, "template": {"metadata": {"labels": {"pool": %[1]q}}, "spec": {
			"requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
			"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}}}}}`, name), "create", "-f", "-")
	runKubectl(t, nil, "wait", "--for=condition=Ready", "--timeout=2m", "nodepool", name)
}

// newDatabasePod makes a pod of the label app=db for the nodes of a NodePool.
func newDatabasePod(t *testing.T, pod *corev1.Pod, pool, cpus string) {
	t.Helper()
	pod.Labels = map[string]string{"app": "db"}
	pod.Spec.NodeSelector = map[string]string{"pool": pool}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpus)}
	_, err := admin.CoreV1().Pods(namespace(t)).Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
}

// newReplica makes a pod with a new claim of 2 GiB; apart: with required anti-affinity against all pods of app=db.
func newReplica(t *testing.T, name, pool, cpus string, apart bool) string {
	t.Helper()
	newClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
	})
	pod := podWithClaim(name)
	if apart {
		pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			}},
		}}
	}
	newDatabasePod(t, pod, pool, cpus)
	return name
}

// newReturningReplica makes a pod with a claim whose volume is on the NodePool's first node.
func newReturningReplica(t *testing.T, name, pool, cpus string) string {
	t.Helper()
	here := &node{name: pool, host: lvmtest.NewHost(t, lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})}
	claim := here.bound(t, name, corev1.PersistentVolumeFilesystem)
	patchClaim(t, claim, "", `{"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}`)
	newDatabasePod(t, podWithClaim(name), pool, cpus)
	return name
}

// startAddedNode does what the kubelet and the driver do on the node that Karpenter has added to a NodePool, and answers its name.
func startAddedNode(t *testing.T, pool string) (name string) {
	t.Helper()
	soon(t, "the added node is registered", func() bool {
		name = nodeClaims(t, pool)[0].Status.NodeName
		return name != ""
	})
	nodes := admin.CoreV1().Nodes()
	_, err := nodes.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(`{"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`), metav1.PatchOptions{}, "status")
	must(t, err)
	_, err = nodes.Patch(t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"labels": {%q: %q}}, "spec": {"taints": null}}`, topology, name), metav1.PatchOptions{})
	must(t, err)
	publishCapacity(t, name, "thin", "10Gi")
	return name
}

// expectSaid waits for Karpenter's event of a pod.
func expectSaid(t *testing.T, pod, reason, want string) {
	t.Helper()
	var said []string
	soon(t, "Karpenter's event "+reason+" on "+pod, func() bool {
		events, err := admin.CoreV1().Events(namespace(t)).List(t.Context(), metav1.ListOptions{FieldSelector: "source=karpenter,involvedObject.name=" + pod})
		must(t, err)
		said = nil
		for _, e := range events.Items {
			said = append(said, e.Reason+": "+e.Message)
		}
		return len(said) > 0
	})
	if len(said) > 1 || !strings.HasPrefix(said[0], reason+": ") || !strings.Contains(said[0], want) {
		t.Errorf("Karpenter says of %s: %q, want %s with %q", pod, said, reason, want)
	}
	t.Logf("%s: %q", pod, said)
}

// nodeClaim is what this test reads of Karpenter's object for a node that it adds.
type nodeClaim struct {
	Metadata metav1.ObjectMeta
	Spec     struct {
		Resources struct{ Requests corev1.ResourceList }
	}
	Status struct{ NodeName string }
}

func nodeClaims(t *testing.T, pool string) []nodeClaim {
	t.Helper()
	text, err := admin.RESTClient().Get().AbsPath("/apis/karpenter.sh/v1/nodeclaims").Param("labelSelector", "karpenter.sh/nodepool="+pool).Do(t.Context()).Raw()
	must(t, err)
	var list struct{ Items []nodeClaim }
	must(t, json.Unmarshal(text, &list))
	return list.Items
}

// expectNodeClaims checks that Karpenter has added this number of nodes, each for one pod and that of the driver's DaemonSet, and
// answers the name of the last one.
func expectNodeClaims(t *testing.T, pool string, want int) (name string) {
	t.Helper()
	claims := nodeClaims(t, pool)
	if len(claims) != want {
		t.Errorf("NodePool %s: there are %d NodeClaims, want %d: %+v", pool, len(claims), want, claims)
	}
	for _, c := range claims {
		if pods := c.Spec.Resources.Requests[corev1.ResourcePods]; pods.Value() != 2 {
			t.Errorf("NodePool %s: NodeClaim %s is for %s pods, want 2", pool, c.Metadata.Name, pods.String())
		}
		name = c.Metadata.Name
	}
	return name
}

// nodeOf is the node that a pod is on.
func nodeOf(t *testing.T, name string) string {
	t.Helper()
	pod, err := admin.CoreV1().Pods(namespace(t)).Get(t.Context(), name, metav1.GetOptions{})
	must(t, err)
	return pod.Spec.NodeName
}
