package kube

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// apart is a required anti-affinity to the pods of the database "orders", over the nodes.
func apart(change func(term *corev1.PodAffinityTerm)) *corev1.Affinity {
	term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"db": "orders"}}}
	change(&term)
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
}

func nothing(*corev1.PodAffinityTerm) {}

// TestManyTermsAreNotCompared: a pod with thousands of terms of anti-affinity costs the agent little time.
func TestManyTermsAreNotCompared(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelHostname: "node-1"}}}
	pod := podWith("db-2", 0, "copy")
	pod.Spec.Affinity = apart(func(term *corev1.PodAffinityTerm) { term.LabelSelector.MatchLabels["db"] = "users" })
	terms := &pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	for pod.Size() < api.MaxObject {
		*terms = append(*terms, (*terms)[0])
	}
	if avoided := avoidedBy(&pod, node); len(avoided) != termsCompared {
		t.Errorf("%d of %d terms are compared", len(avoided), len(*terms))
	}
}

// TestLargeSelectorsAreNotCompared: nor does one with thousands of expressions in a few terms.
func TestLargeSelectorsAreNotCompared(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelHostname: "node-1"}}}
	pod := podWith("db-2", 0, "copy")
	pod.Spec.Affinity = apart(nothing)
	terms := &pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	*terms = append(*terms, *(*terms)[0].DeepCopy(), *(*terms)[0].DeepCopy())
	for range mostCompared {
		large := (*terms)[1].LabelSelector
		large.MatchExpressions = append(large.MatchExpressions, metav1.LabelSelectorRequirement{Key: "db", Operator: metav1.LabelSelectorOpExists})
	}
	if avoided := avoidedBy(&pod, node); len(avoided) != 1 {
		t.Errorf("%d terms are compared, want those before the large one", len(avoided))
	}
}

// TestPinFollowsTheRulesOfThePod: the node with the source of a clone is selected only if a pod of the clone can run there.
func TestPinFollowsTheRulesOfThePod(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(pod, other *corev1.Pod, node *corev1.Node)
		refused string // "": the node is selected
	}{
		"no rule": {func(*corev1.Pod, *corev1.Pod, *corev1.Node) {}, ""},
		"anti-affinity": {func(pod, _ *corev1.Pod, _ *corev1.Node) { pod.Spec.Affinity = apart(nothing) },
			"the required anti-affinity of pod db-2 excludes the node of pod ns/db-1"},
		"anti-affinity of the pod there": {func(pod, other *corev1.Pod, _ *corev1.Node) {
			pod.Labels, other.Spec.Affinity = other.Labels, apart(nothing)
		},
			"the required anti-affinity of pod ns/db-1, which runs there, excludes pod db-2"},
		"anti-affinity to others": {func(pod, _ *corev1.Pod, _ *corev1.Node) {
			pod.Spec.Affinity = apart(func(term *corev1.PodAffinityTerm) { term.LabelSelector.MatchLabels["db"] = "users" })
		}, ""},
		"anti-affinity without a selector": {func(pod, _ *corev1.Pod, _ *corev1.Node) {
			pod.Spec.Affinity = apart(func(term *corev1.PodAffinityTerm) { term.LabelSelector = nil })
		}, ""},
		"anti-affinity over a label that the node lacks": {func(pod, _ *corev1.Pod, _ *corev1.Node) {
			pod.Spec.Affinity = apart(func(term *corev1.PodAffinityTerm) { term.TopologyKey = "rack" })
		}, ""},
		"anti-affinity in another namespace": {func(pod, other *corev1.Pod, _ *corev1.Node) {
			other.Namespace, pod.Spec.Affinity = "there", apart(nothing)
		}, ""},
		"anti-affinity to another namespace": {func(pod, other *corev1.Pod, _ *corev1.Node) {
			other.Namespace, pod.Spec.Affinity = "there", apart(func(term *corev1.PodAffinityTerm) { term.Namespaces = []string{"there"} })
		}, "excludes the node of pod there/db-1"},
		"anti-affinity to all namespaces": {func(pod, other *corev1.Pod, _ *corev1.Node) {
			other.Namespace, pod.Spec.Affinity = "there", apart(func(term *corev1.PodAffinityTerm) { term.NamespaceSelector = &metav1.LabelSelector{} })
		}, "excludes the node of pod there/db-1"},
		"the other pod has ended": {func(pod, other *corev1.Pod, _ *corev1.Node) {
			other.Status.Phase, pod.Spec.Affinity = corev1.PodSucceeded, apart(nothing)
		}, ""},
		"preferred anti-affinity": {func(pod, _ *corev1.Pod, _ *corev1.Node) {
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{Weight: 1, PodAffinityTerm: apart(nothing).PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]}}}}
		}, ""},
		"node selector": {func(pod, _ *corev1.Pod, _ *corev1.Node) { pod.Spec.NodeSelector = map[string]string{"disk": "ssd"} },
			"the nodeSelector or node affinity of pod db-2 excludes it"},
		"taint": {func(_, _ *corev1.Pod, node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		}, "pod db-2 does not tolerate its taint dedicated=gpu:NoSchedule"},
		"tolerated taint": {func(pod, _ *corev1.Pod, node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}, ""},
		"no pod yet": {func(pod, _ *corev1.Pod, _ *corev1.Node) { pod.Spec.Volumes = nil }, ""},
	} {
		pod, other := podWith("db-2", 0, "copy"), podWith("db-1", 0, "data")
		pod.Namespace, other.Namespace, other.Labels = "ns", "ns", map[string]string{"db": "orders"}
		other.Spec.NodeName, pod.UID, other.UID = "node-1", "2", "1"
		node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelHostname: "node-1"}}}
		test.change(&pod, &other, node)
		kind := metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}
		copied := kubetest.Claim("copy", "late", "")
		copied.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(""), Kind: kubeclient.KindClaim, Name: "data"}
		client, sent := kubetest.RecordedClient(t, map[string]any{
			"GET /api/v1/persistentvolumes":          &corev1.PersistentVolumeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeList"}},
			"GET /api/v1/persistentvolumes/pvc-data": kubetest.VolumeOn("node-1", "data"), "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/copy": copied,
			"POST /api/v1/namespaces/ns/events": &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}, "GET /api/v1/nodes/node-1": node,
			"GET /api/v1/namespaces/ns/pods": &corev1.PodList{TypeMeta: kind, Items: []corev1.Pod{pod}}, "GET /api/v1/pods": &corev1.PodList{TypeMeta: kind, Items: []corev1.Pod{other}},
		})
		agent := NewAgent(Config{Client: client, Node: "node-1", Volumes: &allThere{}, Log: slog.New(slog.DiscardHandler)})
		must(t, agent.claims.Add(kubetest.Claim("data", "late", "pvc-data")))
		if _, err := agent.pin(t.Context(), copied, sourceOf(copied)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		requests := strings.Join(sent(), "\n")
		if pinned := strings.Contains(requests, "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/copy"); pinned == (test.refused != "") {
			t.Errorf("%s: selected: %t\n%s", name, pinned, requests)
		}
		rule := ""
		if test.refused != "" {
			pods, err := agent.podsOf(t.Context(), copied)
			must(t, err)
			if rule, err = agent.ruleAgainst(t.Context(), pods); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.Contains(rule, test.refused) {
			t.Errorf("%s: the rule is %q, want %q", name, rule, test.refused)
		}
		event := agent.events.Object(kubeclient.Event{About: kubeclient.AboutClaim("ns", "copy", copied.UID), Reason: api.ReasonSourceNodeExcluded}, time.Now())
		if written := agent.events.Counts["ns/"+event.Name].Times > 0; written != (test.refused != "") {
			t.Errorf("%s: event on the claim: %t", name, written)
		}
	}
}

// TestNewCloneWaitsForItsPod: an operator creates a claim, and its pod a moment later.
func TestNewCloneWaitsForItsPod(t *testing.T) {
	agent, _, sent := withVolumes(t, kubetest.VolumeOn("node-1", "data"))
	copied := kubetest.Claim("copy", "late", "")
	copied.CreationTimestamp = metav1.Now()
	copied.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(""), Kind: kubeclient.KindClaim, Name: "data"}
	if kept := stripClaim(copied); !kept.CreationTimestamp.Equal(&copied.CreationTimestamp) {
		t.Errorf("the store keeps %s", kept.CreationTimestamp)
	}
	before := 0
	for _, test := range []struct {
		age      time.Duration
		selected string
		pinned   bool
	}{{0, "", false}, {podsFirst + time.Second, "", true}, {0, "node-2", true}} {
		copied.CreationTimestamp = metav1.NewTime(time.Now().Add(-test.age))
		copied.Annotations = map[string]string{api.AnnotationSelectedNode: test.selected}
		if _, err := agent.pin(t.Context(), copied, sourceOf(copied)); err != nil {
			t.Fatal(err)
		}
		patches := strings.Count(strings.Join(sent(), "\n"), "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/copy")
		if pinned := patches > before; pinned != test.pinned {
			t.Errorf("after %s without a pod, with the selected node %q: selected: %t", test.age, test.selected, pinned)
		}
		before = patches
	}
}
