package pending

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// IsUnschedulable reports whether the scheduler says that it cannot place a pod. A pod with a scheduling gate waits on purpose.
func IsUnschedulable(pod *corev1.Pod) bool {
	return len(pod.Spec.SchedulingGates) == 0 && schedulerMessage(pod) != ""
}

// schedulerMessage returns why the scheduler could not place a pod; "": it has not said so.
func schedulerMessage(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			text := c.Message
			for _, further := range []string{" no new claims to deallocate", " preemption:"} { // what the scheduler cannot do to make room
				text, _, _ = strings.Cut(text, further)
			}
			return cutMessage(strings.TrimSuffix(text, "."))
		}
	}
	return ""
}

// Reasons of the scheduler for the nodes that do not have the volume: today's, and an older one.
var otherNodes = []string{"node(s) didn't match PersistentVolume's node affinity", "node(s) had volume node affinity conflict"}

// words are the scheduler's reasons in the words of an answer about one node.
var words = map[string]string{
	"Insufficient cpu":    "lacks CPU",
	"Insufficient memory": "lacks memory",
	"Too many pods":       "has as many pods as it may",
	"node(s) didn't match pod anti-affinity rules":               "is excluded by the pod's anti-affinity",
	"node(s) didn't satisfy existing pods anti-affinity rules":   "is excluded by the anti-affinity of a pod that runs there",
	"node(s) didn't match pod affinity rules":                    "is excluded by the pod's affinity to other pods",
	"node(s) didn't match pod topology spread constraints":       "is excluded by the pod's topology spread constraints",
	"node(s) didn't have free ports for the requested pod ports": "has no free host port for the pod",
}

// lacksOf says what the only node lacks that can have the pod's volumes, from the scheduler's message: "0/3 nodes are available:
// 1 Insufficient cpu, 2 node(s) didn't match PersistentVolume's node affinity". "": the message does not say of which node it speaks,
// because more than one node has another reason.
func lacksOf(message string) string {
	_, list, cut := strings.Cut(message, " nodes are available: ")
	if !cut {
		return ""
	}
	found := ""
	for part := range strings.SplitSeq(list, ", ") {
		count, reason, _ := strings.Cut(part, " ")
		switch {
		case slices.Contains(otherNodes, reason):
		case count != "1" || found != "" || words[reason] == "":
			return ""
		default:
			found = words[reason]
		}
	}
	return found
}
