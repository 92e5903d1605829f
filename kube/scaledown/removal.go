package scaledown

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/lvm"
)

// announcement is a taint that an autoscaler sets on a node before it removes it.
type announcement struct {
	taint string // its key
	means string // what the autoscaler does
	keep  string // how to keep the node, or others like it
}

// announcements has the most urgent one first. The taints are those of cluster-autoscaler (utils/taints) and of Karpenter
// (pkg/apis/v1/taints.go).
var announcements = []announcement{
	{
		"ToBeDeletedByClusterAutoscaler", "cluster-autoscaler removes this node",
		"To keep other nodes with volumes, set their annotation cluster-autoscaler.kubernetes.io/scale-down-disabled to true.",
	},
	{
		"karpenter.sh/disrupted", "Karpenter removes this node",
		"To keep other nodes with volumes, set their annotation karpenter.sh/do-not-disrupt to true.",
	},
	{
		"DeletionCandidateOfClusterAutoscaler", "cluster-autoscaler removes this node if it stays unneeded",
		"To keep it, set its annotation cluster-autoscaler.kubernetes.io/scale-down-disabled to true.",
	},
}

// announced returns the most urgent announcement among a node's taints; nil: no autoscaler is about to remove the node.
func announced(taints []corev1.Taint) *announcement {
	for i, a := range announcements {
		if slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == a.taint }) {
			return &announcements[i]
		}
	}
	return nil
}

// state has the facts that a Reporter decides from.
type state struct {
	nodes    map[string]*announcement // all nodes; nil: no autoscaler is about to remove the node
	volumes  iter.Seq[*cluster.Volume]
	released map[string]bool // classes whose volumes may go with their node
}

// warnings returns the message for each node whose removal is announced and loses volumes.
func warnings(s state) map[string]string {
	counts, sizes := map[string]int{}, map[string]lvm.Bytes{}
	for v := range s.volumes {
		if s.nodes[v.Node] != nil && !v.Deleting && !s.released[v.Class] {
			counts[v.Node]++
			sizes[v.Node] += v.Size
		}
	}
	messages := map[string]string{}
	for node, n := range counts {
		volumes := "1 volume"
		if n > 1 {
			volumes = fmt.Sprintf("%d volumes", n)
		}
		a := s.nodes[node]
		// Events on nodes are in the namespace default, whose readers may not know the claims of other namespaces: no names.
		messages[node] = fmt.Sprintf("%s (taint %s), and with it the data of %s (%s) on its disks. %s To list the volumes: kubectl nodelvm drain-check %s",
			a.means, a.taint, volumes, sizes[node], a.keep, node)
	}
	return messages
}
