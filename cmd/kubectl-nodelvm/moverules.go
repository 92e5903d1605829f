package main

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/nodelvm/nodelvm/lvm"
)

// where returns the node on which a pod is, or will be after the planned moves; "": none yet.
func (t *targets) where(pod *corev1.Pod) *corev1.Node {
	if node, planned := t.placed[pod]; planned {
		return t.named[node]
	}
	return t.named[pod.Spec.NodeName]
}

// podsOn returns the pods that are on a node, or will be after the planned moves.
func (t *targets) podsOn(node string) (pods []*corev1.Pod) {
	for _, pod := range t.on[node] {
		if to, planned := t.placed[pod]; !planned || to == node {
			pods = append(pods, pod)
		}
	}
	for pod, to := range t.placed {
		if to == node && pod.Spec.NodeName != node {
			pods = append(pods, pod)
		}
	}
	return pods
}

// mayNotRunWith says which required anti-affinity keeps a pod from a node, its own or that of a pod there; "": none. Those that move with it do not
// count.
func (t *targets) mayNotRunWith(pod *corev1.Pod, node *corev1.Node, with []*corev1.Pod) string {
	others, known := t.apart[pod]
	if !known {
		others = t.selectedBy(pod)
		t.apart[pod] = others
	}
	for _, other := range others {
		on := t.where(other)
		if on == nil || slices.Contains(with, other) || other.DeletionTimestamp != nil {
			continue
		}
		if excludes(pod, other, node, on) || excludes(other, pod, node, on) {
			return fmt.Sprintf("pods %s and %s/%s (on node %s) may not run together (required anti-affinity)", pod.Name, other.Namespace, other.Name, on.Name)
		}
	}
	return ""
}

// selectedBy returns the pods that a required anti-affinity of a pod selects, or that select it so.
func (t *targets) selectedBy(pod *corev1.Pod) (others []*corev1.Pod) {
	for i := range t.pods {
		if other := &t.pods[i]; len(termsAgainst(pod, other))+len(termsAgainst(other, pod)) > 0 {
			others = append(others, other)
		}
	}
	return others
}

// excludes reports whether a required anti-affinity of a pod selects the other one, and both nodes are one topology domain.
func excludes(pod, other *corev1.Pod, a, b *corev1.Node) bool {
	return slices.ContainsFunc(termsAgainst(pod, other), func(key string) bool {
		domain, labelled := a.Labels[key]
		return labelled && b.Labels[key] == domain
	})
}

// termsAgainst returns the topology keys of a pod's required anti-affinities that select the other pod. Terms that select namespaces by labels are
// not read.
func termsAgainst(pod, other *corev1.Pod) (keys []string) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err != nil || !selector.Matches(labels.Set(other.Labels)) {
			continue
		}
		all := term.NamespaceSelector != nil && len(term.NamespaceSelector.MatchLabels)+len(term.NamespaceSelector.MatchExpressions) == 0
		own := term.NamespaceSelector == nil && len(term.Namespaces) == 0 && pod.Namespace == other.Namespace
		if all || own || slices.Contains(term.Namespaces, other.Namespace) {
			keys = append(keys, term.TopologyKey)
		}
	}
	return keys
}

// room says which resource that a pod requests a node lacks; "": none, or that is unknown.
func (t *targets) room(pod *corev1.Pod, node *corev1.Node, with []*corev1.Pod) string {
	if !t.allPods || len(node.Status.Allocatable) == 0 {
		return ""
	}
	used, count := corev1.ResourceList{}, int64(len(with))
	for _, other := range t.podsOn(node.Name) {
		if other == pod {
			continue
		}
		count++
		addTo(used, resourcehelper.PodRequests(other, resourcehelper.PodResourcesOptions{}))
	}
	for name, request := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		has, taken := node.Status.Allocatable[name], used[name]
		if request.IsZero() {
			continue
		}
		if has.Sub(taken); has.Cmp(request) < 0 {
			return fmt.Sprintf("it has %s of %s left for pods, and pod %s requests %s", amount(name, has), name, pod.Name, amount(name, request))
		}
	}
	if most, limited := node.Status.Allocatable[corev1.ResourcePods]; limited && count > most.Value() {
		return fmt.Sprintf("it has %d pods, and can run at most %s", count-int64(len(with)), most.String())
	}
	return ""
}

func addTo(sum, more corev1.ResourceList) {
	for name, quantity := range more {
		total := sum[name]
		total.Add(quantity)
		sum[name] = total
	}
}

// amount formats a quantity of a resource.
func amount(name corev1.ResourceName, q resource.Quantity) string {
	if name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
		return lvm.Bytes(max(0, q.Value())).String()
	}
	return q.String()
}

// unchecked names rules of a pod that apart and room do not know; nil: it has none.
func unchecked(pod *corev1.Pod) (rules []string) {
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		rules = append(rules, "required pod affinity")
	}
	if slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable == corev1.DoNotSchedule }) {
		rules = append(rules, "topology spread constraints")
	}
	if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
	}) {
		rules = append(rules, "host ports")
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		rules = append(rules, "claims of devices")
	}
	return rules
}
