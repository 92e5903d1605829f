package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// The selected node of a claim overrides the scheduler: if a rule excludes the claim's pod from it, the pod is never scheduled. So the
// node with the source of a copy first compares the rules of the claim's pods with itself: taints, node selector, node affinity, and
// required anti-affinity between pods. It sees the pods on this node only: of an anti-affinity over a zone it misses pods on
// other nodes. It does not compare CPU, memory and ports, which change.

const (
	podsFirst     = 5 * time.Second // How long a new claim may lack a pod: an operator creates both within seconds.
	excludedAgain = time.Minute     // Interval of the comparison while a rule excludes the node: no watch announces its end.
	podsCompared  = 8               // Of one claim.
)

// mayPin reports whether this node, which has the source, may be selected for the claim: a pod of the claim can run here, or the claim has
// none. If not, it queues the claim again, and an event says why.
func (a *Agent) mayPin(ctx context.Context, claim *corev1.PersistentVolumeClaim, from source) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, podClaimsTimeout)
	defer cancel()
	pods, err := a.podsOf(ctx, claim)
	if err != nil {
		return false, err
	}
	object := kubeclient.ObjectKey{Kind: kubeclient.KindClaim, Key: kubeclient.KeyOf(claim)}
	if len(pods) == 0 {
		left := time.Until(claim.CreationTimestamp.Add(podsFirst))
		if left <= 0 || pending.NodeOfClaim(claim, nil) != "" { // the scheduler has seen a pod
			return true, nil
		}
		a.queue.AddAfter(object, left)
		return false, nil
	}
	rule, err := a.ruleAgainst(ctx, pods)
	if err != nil || rule == "" {
		return err == nil, err
	}
	a.queue.AddAfter(object, excludedAgain)
	message := fmt.Sprintf("a copy is possible only on the node of its source, and %s %s is on node %s; but %s. No node is selected. "+
		"Change that rule of the pod, or delete the claim and create it again without a source", from.kind, from.key, a.node, rule)
	return false, a.events.RecordOnce(ctx, kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: corev1.EventTypeWarning,
		Reason: api.ReasonSourceNodeExcluded, Message: message})
}

// ruledPodFields are the fields of a Pod that decide on which nodes it may run (k8s.io/api/core/v1/generated.proto).
var ruledPodFields = fieldTree{
	1: {1: nil, 3: nil, 5: nil, 11: nil}, // metadata: name, namespace, uid, labels
	2: {7: nil, 18: nil, 22: nil},        // spec: nodeSelector, affinity, tolerations
	3: {1: nil},                          // status: phase
}

// podsOf returns the first pods that wait for a node with the claim, with their rules.
func (a *Agent) podsOf(ctx context.Context, claim *corev1.PersistentVolumeClaim) (pods []corev1.Pod, err error) {
	waiting, err := a.pods.waiting(ctx, claim.Namespace)
	if err != nil {
		return nil, err
	}
	for _, pod := range waiting {
		if !slices.Contains(pod.claims, claim.Name) || len(pods) == podsCompared {
			continue
		}
		named := fields.Set{"metadata.name": pod.name, "spec.nodeName": ""}.AsSelector()
		if err := a.pods.each(ctx, claim.Namespace, named, ruledPodFields, func(pod *corev1.Pod) { pods = append(pods, *pod.DeepCopy()) }); err != nil {
			return nil, fmt.Errorf("cannot read pod %s/%s, which uses claim %s: %w", claim.Namespace, pod.name, claim.Name, err)
		}
	}
	return pods, nil
}

// ruleAgainst says which rule keeps the pods from this node; "": one of them may run here.
func (a *Agent) ruleAgainst(ctx context.Context, pods []corev1.Pod) (rule string, err error) {
	node, err := a.client.Node(ctx, a.node)
	if err != nil || node == nil {
		return "", err
	}
	rules := make([]string, len(pods))
	for i := range pods {
		if found := pending.RulesAgainst(&pods[i], node); len(found) > 0 {
			rules[i] = found[0]
		}
	}
	err = a.pods.each(ctx, metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", a.node), ruledPodFields, func(other *corev1.Pod) {
		for i := range pods {
			if rules[i] == "" {
				rules[i] = antiAffinity(&pods[i], other, node)
			}
		}
	})
	if err != nil {
		return "", fmt.Errorf("cannot list the pods on node %s: %w", a.node, err)
	}
	if slices.Contains(rules, "") {
		return "", nil
	}
	return rules[0], nil
}

// antiAffinity says which required anti-affinity keeps a pod from the node, on which the other pod runs; "": none.
func antiAffinity(pod, other *corev1.Pod, node *corev1.Node) string {
	switch {
	case other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed:
		return ""
	case avoids(pod, other, node):
		return fmt.Sprintf("the required anti-affinity of pod %s excludes the node of pod %s/%s", pod.Name, other.Namespace, other.Name)
	case avoids(other, pod, node):
		return fmt.Sprintf("the required anti-affinity of pod %s/%s, which runs there, excludes pod %s", other.Namespace, other.Name, pod.Name)
	}
	return ""
}

// avoids reports whether a required anti-affinity of a pod excludes the node on which the other one runs, or the other way round. A selector of
// namespaces by label counts only if it selects all: the driver reads no namespaces.
func avoids(pod, other *corev1.Pod, node *corev1.Node) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	return slices.ContainsFunc(pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(term corev1.PodAffinityTerm) bool {
		if _, has := node.Labels[term.TopologyKey]; !has {
			return false
		}
		everywhere := term.NamespaceSelector != nil && len(term.NamespaceSelector.MatchLabels)+len(term.NamespaceSelector.MatchExpressions) == 0
		own := len(term.Namespaces) == 0 && term.NamespaceSelector == nil && pod.Namespace == other.Namespace
		if !everywhere && !own && !slices.Contains(term.Namespaces, other.Namespace) {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		return err == nil && selector.Matches(labels.Set(other.Labels))
	})
}
