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
	"github.com/nodelvm/nodelvm/kube/podlist"
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
	termsCompared = 64              // Of the anti-affinity of a pod, which a tenant writes; with each pod on the node.
	mostCompared  = 256             // Labels, expressions and values in these terms.
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
		"Change that rule of the pod, or delete the claim and create it again without a source%s", from.kind, from.key, a.node, rule, orElsewhere(claim))
	return false, a.events.RecordOnce(ctx, kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: corev1.EventTypeWarning,
		Reason: api.ReasonSourceNodeExcluded, Message: message})
}

// orElsewhere ends a sentence about what to do. A read-only copy is on the node of its source in each class.
func orElsewhere(claim *corev1.PersistentVolumeClaim) string {
	if slices.Contains(claim.Spec.AccessModes, corev1.ReadOnlyMany) {
		return ""
	}
	return fmt.Sprintf(", or with a StorageClass that has %s: \"true\"", api.ParameterRestoreOnOtherNodes)
}

// ruledPodFields are the fields of a Pod that decide on which nodes it may run (k8s.io/api/core/v1/generated.proto).
var ruledPodFields = podlist.Fields{
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
		if _, err := podlist.Each(ctx, a.client.Core, claim.Namespace, named, ruledPodFields, func(pod *corev1.Pod) { pods = append(pods, *pod.DeepCopy()) }); err != nil {
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
	rules, avoided := make([]string, len(pods)), make([][]podSelector, len(pods))
	for i := range pods {
		avoided[i] = avoidedBy(&pods[i], node)
		if found := pending.RulesAgainst(&pods[i], node); len(found) > 0 {
			rules[i] = found[0]
		}
	}
	_, err = podlist.Each(ctx, a.client.Core, metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", a.node), ruledPodFields, func(other *corev1.Pod) {
		avoidedByOther := avoidedBy(other, node)
		for i := range pods {
			if rules[i] == "" {
				rules[i] = antiAffinity(&pods[i], other, avoided[i], avoidedByOther)
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

// antiAffinity says which required anti-affinity keeps a pod from the node, on which the other pod runs; "": none. The pods avoid those that are selected.
func antiAffinity(pod, other *corev1.Pod, avoided, avoidedByOther []podSelector) string {
	switch {
	case other.Status.Phase == corev1.PodSucceeded || other.Status.Phase == corev1.PodFailed:
		return ""
	case selects(avoided, other):
		return fmt.Sprintf("the required anti-affinity of pod %s excludes the node of pod %s/%s", pod.Name, other.Namespace, other.Name)
	case selects(avoidedByOther, pod):
		return fmt.Sprintf("the required anti-affinity of pod %s/%s, which runs there, excludes pod %s", other.Namespace, other.Name, pod.Name)
	}
	return ""
}

// sizeOf counts the labels, expressions and values of a selector.
func sizeOf(s *metav1.LabelSelector) (n int) {
	if s == nil {
		return 0
	}
	for _, e := range s.MatchExpressions {
		n += 1 + len(e.Values)
	}
	return n + len(s.MatchLabels)
}

// podSelector is a term of an anti-affinity.
type podSelector struct {
	everywhere bool // in all namespaces
	namespaces []string
	labels     labels.Selector
}

func selects(of []podSelector, pod *corev1.Pod) bool {
	return slices.ContainsFunc(of, func(s podSelector) bool {
		return (s.everywhere || slices.Contains(s.namespaces, pod.Namespace)) && s.labels.Matches(labels.Set(pod.Labels))
	})
}

// avoidedBy returns the pods that the required anti-affinity of a pod keeps from the node, or the pod from theirs. A selector of namespaces by label counts
// only if it selects all: the driver reads no namespaces.
func avoidedBy(pod *corev1.Pod, node *corev1.Node) (avoided []podSelector) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	terms := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	left := mostCompared
	for _, term := range terms[:min(len(terms), termsCompared)] {
		if left -= sizeOf(term.LabelSelector); left < 0 {
			break
		}
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if _, has := node.Labels[term.TopologyKey]; !has || err != nil {
			continue
		}
		s := podSelector{namespaces: term.Namespaces, labels: selector}
		if term.NamespaceSelector != nil {
			s.everywhere = len(term.NamespaceSelector.MatchLabels)+len(term.NamespaceSelector.MatchExpressions) == 0
		} else if len(term.Namespaces) == 0 {
			s.namespaces = []string{pod.Namespace}
		}
		avoided = append(avoided, s)
	}
	return avoided
}
