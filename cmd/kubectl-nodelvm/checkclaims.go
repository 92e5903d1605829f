package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
)

// checkNodesReady reports nodes with a driver pod that are not Ready.
func checkNodesReady(f *facts, found func(where, what, fix string)) {
	for _, node := range f.nodes {
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
		runs := slices.ContainsFunc(f.pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == node.Name })
		if runs && i >= 0 && node.Status.Conditions[i].Status != corev1.ConditionTrue {
			found(node.Name, "the node is not Ready, so pods with its volumes cannot run: "+node.Status.Conditions[i].Message,
				"kubectl describe node "+node.Name+"; if it does not come back: docs/howto/lost-nodes.md")
		}
	}
}

// Limits of doctor's findings about claims: a full cluster may have thousands of waiting claims.
const (
	claimsReported = 20
	nodesReported  = 5
)

// checkClaims reports claims that a pod uses and that have no volume. It skips classes whose parameters a driver refuses:
// checkClasses reports those once.
func checkClaims(f *facts, found func(where, what, fix string)) {
	reported, more := 0, 0
	namespaces := map[string]*whyFacts{}
	for _, claim := range f.claims {
		class := f.classNamed(api.ClassOf(claim.Annotations, claim.Spec.StorageClassName))
		if claim.Status.Phase != corev1.ClaimPending || class == nil || f.isRefused(class.Name) {
			continue
		}
		if reported == claimsReported {
			more++
			continue
		}
		if namespaces[claim.Namespace] == nil {
			namespaces[claim.Namespace] = f.inNamespace(claim.Namespace)
		}
		facts := namespaces[claim.Namespace].facts(claim)
		if len(facts.Pods) > 0 { // else it waits for its first pod
			reported++
			reportClaim(pending.Explain(facts), claim, found)
		}
	}
	if more > 0 {
		found("claims", fmt.Sprintf("up to %d more claims wait for a volume", more), "kubectl get pvc -A; kubectl nodelvm why CLAIM -n NAMESPACE")
	}
}

func reportClaim(a pending.Answer, claim corev1.PersistentVolumeClaim, found func(where, what, fix string)) {
	what := a.Causes[0].Text
	if slices.ContainsFunc(a.Nodes, func(n pending.NodeAnswer) bool { return len(n.Obstacles) == 0 }) {
		a.Nodes = nil // something else is the cause
	}
	for _, n := range a.Nodes[:min(len(a.Nodes), nodesReported)] {
		what += "; " + n.Node + ": " + strings.Join(n.Obstacles, ", ")
	}
	if rest := len(a.Nodes) - nodesReported; rest > 0 {
		what += fmt.Sprintf("; and %d more nodes", rest)
	}
	found("claim "+a.Claim, what, strings.TrimPrefix(a.Causes[0].Fix+"; all of it: kubectl nodelvm why "+claim.Name+" -n "+claim.Namespace, "; "))
}

// classNamed returns the driver's class with that name, or nil if the class is another driver's or does not exist.
func (f *facts) classNamed(name string) *storagev1.StorageClass {
	i := slices.IndexFunc(f.classes, func(class storagev1.StorageClass) bool { return class.Name == name })
	if i < 0 {
		return nil
	}
	return &f.classes[i]
}

// isRefused reports whether any driver refuses a class' parameters.
func (f *facts) isRefused(class string) bool {
	for _, a := range f.answering() {
		for _, c := range a.page.Classes {
			if c.Name == class && c.Error != "" {
				return true
			}
		}
	}
	return false
}

// inNamespace returns the facts that why reads about one namespace.
func (f *facts) inNamespace(namespace string) *whyFacts {
	w := &whyFacts{namespace: namespace, contents: f.contents, volumes: f.volumes, classes: f.classes, nodes: f.nodes, answers: f.answers}
	for _, claim := range f.claims {
		if claim.Namespace == namespace {
			w.claims = append(w.claims, claim)
		}
	}
	for _, pod := range f.users {
		if pod.Namespace == namespace {
			w.pods = append(w.pods, pod)
		}
	}
	for _, snapshot := range f.taken {
		if snapshot.Namespace == namespace {
			w.snapshots = append(w.snapshots, snapshot)
		}
	}
	return w
}
