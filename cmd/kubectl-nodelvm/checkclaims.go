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

// checkNodesReady reports nodes with a driver pod that are not Ready. What follows from that, no other check reports.
func checkNodesReady(f *facts, found func(where, what, fix string)) {
	for _, node := range f.nodes {
		why, down := f.isDown(node.Name)
		if down && slices.ContainsFunc(f.drivers, func(pod corev1.Pod) bool { return pod.Spec.NodeName == node.Name }) {
			found(node.Name, "the node is not Ready, so pods with its volumes cannot run: "+why, "kubectl describe node "+node.Name+"; if it does not come back: docs/howto/lost-nodes.md")
		}
	}
}

// isDown reports whether a node is not Ready, and what its condition says.
func (f *facts) isDown(name string) (why string, down bool) {
	node := find(f.nodes, func(n *corev1.Node) bool { return n.Name == name })
	if node == nil {
		return "", false
	}
	ready := find(node.Status.Conditions, func(c *corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if ready == nil || ready.Status == corev1.ConditionTrue {
		return "", false
	}
	return ready.Message, true
}

// isDeleted reports whether the cluster has no such node.
func (f *facts) isDeleted(name string) bool {
	return len(f.nodes) > 0 && !slices.ContainsFunc(f.nodes, func(n corev1.Node) bool { return n.Name == name })
}

// Limits of doctor's findings about claims and pods: a full cluster may have thousands that wait.
const (
	claimsReported = 20
	nodesReported  = 5
)

// waitingClaims returns the claims that a pod uses and that have no volume. It skips classes that checkClasses reports once: those whose
// parameters a driver refuses, and those whose volumes the admission policy refuses.
func (f *facts) waitingClaims() (waiting []corev1.PersistentVolumeClaim) {
	users, refused := usersOf(f.pods), map[string]bool{}
	for i := range f.classes {
		refused[f.classes[i].Name] = f.isRefused(&f.classes[i])
	}
	for _, claim := range f.claims {
		class := f.classOfClaim(&claim)
		if claim.Status.Phase == corev1.ClaimPending && class != nil && class.Provisioner == api.DriverName && !refused[class.Name] && len(users[claim.Namespace+"/"+claim.Name]) > 0 {
			waiting = append(waiting, claim)
		}
	}
	return waiting
}

// checkClaims reports the claims that wait, and pods that wait for a claim that does not exist.
func checkClaims(f *facts, found func(where, what, fix string)) {
	waiting := f.waitingClaims()
	for _, claim := range waiting[:min(len(waiting), claimsReported)] {
		reportClaim(pending.Explain(f.ofClaim(claim)), claim, found)
	}
	if more := len(waiting) - claimsReported; more > 0 {
		found("claims", fmt.Sprintf("%d more claims wait for a volume", more), "kubectl get pvc -A; kubectl nodelvm why CLAIM -n NAMESPACE")
	}
	for _, a := range f.missingClaims() {
		found("pod "+a.namespace+"/"+a.pod, a.cause.Text, a.cause.Fix)
	}
}

// missingClaim is a claim that a pod waits for and that does not exist.
type missingClaim struct {
	namespace, pod string
	cause          pending.Cause
}

// missingClaims returns at most claimsReported of them: those of pods that have another volume of the driver, and those that a volume of the
// driver names. Another driver may be to create the others.
func (f *facts) missingClaims() (missing []missingClaim) {
	exists, named := map[string]bool{}, map[string]bool{}
	for _, claim := range f.claims {
		exists[claim.Namespace+"/"+claim.Name] = true
	}
	for i := range f.volumes {
		named[claimOf(&f.volumes[i])] = true
	}
	for i := range f.pods {
		pod := &f.pods[i]
		names := pending.ClaimNames(pod)
		ours := slices.ContainsFunc(names, func(name string) bool { return named[pod.Namespace+"/"+name] })
		for _, name := range names {
			if ours && pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName == "" && !exists[pod.Namespace+"/"+name] && len(missing) < claimsReported {
				missing = append(missing, missingClaim{pod.Namespace, pod.Name, pending.ExplainMissing(pod, name).Causes[0]})
			}
		}
	}
	return missing
}

func reportClaim(a pending.Answer, claim corev1.PersistentVolumeClaim, found func(where, what, fix string)) {
	var whats, fixes []string
	for _, cause := range a.Causes {
		whats = append(whats, cause.Text)
		if cause.Fix != "" {
			fixes = append(fixes, cause.Fix)
		}
	}
	if slices.ContainsFunc(a.Nodes, func(n pending.NodeAnswer) bool { return len(n.Obstacles) == 0 }) {
		a.Nodes = nil // something else is the cause
	}
	for _, n := range a.Nodes[:min(len(a.Nodes), nodesReported)] {
		whats = append(whats, n.Node+": "+strings.Join(n.Obstacles, ", "))
	}
	if rest := len(a.Nodes) - nodesReported; rest > 0 {
		whats = append(whats, fmt.Sprintf("and %d more nodes", rest))
	}
	found("claim "+a.Claim, strings.Join(whats, "; "), strings.Join(append(fixes, "all of it: kubectl nodelvm why "+claim.Name+" -n "+claim.Namespace), "; "))
}

// isRefused reports whether any driver refuses a class' parameters, or the admission policy its volumes.
func (f *facts) isRefused(class *storagev1.StorageClass) bool {
	refused := false
	f.keyPolicy.checkKeys(*class, func(_, _, _ string) { refused = true })
	for _, a := range f.answering() {
		c := classOf(a.page, class.Name)
		refused = refused || c != nil && c.Error != ""
	}
	return refused
}
