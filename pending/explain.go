package pending

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm/inventory"
)

// Explain says why the claim has no volume: causes first that no node can change, then each node.
func Explain(f Facts) Answer {
	a := Answer{Claim: f.Claim.Namespace + "/" + f.Claim.Name, Class: classOf(f.Claim), Size: requestOf(f.Claim).String(), Causes: []Cause{}, Nodes: []NodeAnswer{}}
	for _, pod := range f.Pods {
		a.Pods = append(a.Pods, pod.Name)
	}
	if bound := boundCause(f.Claim); bound != nil {
		a.Causes = append(a.Causes, *bound)
		return a
	}
	refusal := refusedByAll(f.Nodes)
	a.Causes = append(a.Causes, slices.Concat(classCauses(f, refusal), podCauses(f), sourceCauses(f))...)
	for _, n := range f.Nodes {
		a.Nodes = append(a.Nodes, explainNode(f, n, refusal != ""))
	}
	slices.SortFunc(a.Nodes, func(x, y NodeAnswer) int {
		return cmp.Or(cmp.Compare(len(x.Obstacles), len(y.Obstacles)), strings.Compare(x.Node, y.Node))
	})
	if len(a.Causes) == 0 {
		a.Causes = append(a.Causes, nodesCause(f, a.Nodes))
	}
	return a
}

func boundCause(claim corev1.PersistentVolumeClaim) *Cause {
	switch claim.Status.Phase {
	case corev1.ClaimBound:
		return &Cause{Text: "the claim does not wait: it is bound to " + claim.Spec.VolumeName}
	case corev1.ClaimPending:
	case corev1.ClaimLost:
		return &Cause{Text: "the claim's PersistentVolume " + claim.Spec.VolumeName + " was deleted", Fix: "see docs/howto/lost-nodes.md"}
	}
	return nil
}

func classOf(claim corev1.PersistentVolumeClaim) string {
	return api.ClassOf(claim.Annotations, claim.Spec.StorageClassName)
}

// refusedByAll is why all drivers that report refuse the class' parameters; "": some accepts them.
func refusedByAll(nodes []Node) (refusal string) {
	for _, n := range nodes {
		switch {
		case n.Silent != "":
		case n.Refused == "":
			return ""
		default:
			refusal = n.Refused
		}
	}
	return refusal
}

func classCauses(f Facts, refusal string) []Cause {
	name := classOf(f.Claim)
	switch {
	case name == "":
		return []Cause{{"the claim names no StorageClass, and the cluster had no default class when the claim was created",
			"create the claim again with storageClassName"}}
	case f.Class == nil:
		return []Cause{{fmt.Sprintf("StorageClass %q does not exist", name), "create it, or create the claim again with another storageClassName"}}
	case f.Class.Provisioner != api.DriverName:
		return []Cause{{fmt.Sprintf("StorageClass %q belongs to the driver %s, not to nodelvm", name, f.Class.Provisioner), "read that driver's log"}}
	case f.Class.VolumeBindingMode == nil || *f.Class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer:
		return []Cause{{fmt.Sprintf("StorageClass %q binds immediately, before the scheduler has chosen a node", name),
			"create the class again with volumeBindingMode: WaitForFirstConsumer"}}
	case refusal != "":
		return []Cause{{refusal, fmt.Sprintf("delete StorageClass %s and create it again with correct parameters: they cannot be changed; its claims can stay", name)}}
	}
	return nil
}

func podCauses(f Facts) []Cause {
	if len(f.Pods) == 0 {
		return []Cause{{"no pod uses the claim: the scheduler chooses the node with the first pod", "create a pod that uses it"}}
	}
	var causes []Cause
	for _, pod := range f.Pods {
		if pod.Spec.NodeName != "" && f.Claim.Annotations[api.AnnotationSelectedNode] == "" {
			causes = append(causes, Cause{fmt.Sprintf("pod %s names its node %s in spec.nodeName, so the scheduler never sees it and chooses no node for the claim", pod.Name, pod.Spec.NodeName),
				"use a nodeSelector with kubernetes.io/hostname instead of nodeName"})
		}
		for _, gate := range pod.Spec.SchedulingGates {
			causes = append(causes, Cause{fmt.Sprintf("pod %s has the scheduling gate %s", pod.Name, gate.Name), "wait for the controller that removes it"})
		}
	}
	return causes
}

func sourceCauses(f Facts) []Cause {
	switch s := f.Source; {
	case s == nil:
		return nil
	case s.Missing:
		return []Cause{{fmt.Sprintf("the claim's source, %s %s, does not exist", s.Kind, s.Name), "create it, or create the claim again with another dataSource"}}
	case s.NotReady:
		return []Cause{{fmt.Sprintf("the claim's source, %s %s, is not ready", s.Kind, s.Name), fmt.Sprintf("kubectl -n %s describe %s %s", f.Claim.Namespace, strings.ToLower(s.Kind), s.Name)}}
	}
	return nil
}

// nodesCause sums up the nodes.
func nodesCause(f Facts, nodes []NodeAnswer) Cause {
	selected := f.Claim.Annotations[api.AnnotationSelectedNode]
	i := slices.IndexFunc(nodes, func(n NodeAnswer) bool { return n.Node == selected })
	switch {
	case len(nodes) == 0:
		return Cause{"nodelvm's driver runs on no node", "kubectl nodelvm doctor"}
	case i >= 0 && len(nodes[i].Obstacles) == 0:
		return Cause{fmt.Sprintf("the scheduler has chosen %s, and the driver there creates the volume", selected),
			fmt.Sprintf("if that lasts: kubectl -n %s describe pvc %s", f.Claim.Namespace, f.Claim.Name)}
	case len(nodes[0].Obstacles) == 0:
		return Cause{fmt.Sprintf("%s has capacity for the volume: something else keeps the pod from it, such as CPU, memory or rules between pods", nodes[0].Node),
			fmt.Sprintf("kubectl -n %s describe pod %s", f.Claim.Namespace, f.Pods[0].Name)}
	}
	return Cause{"no node can have the volume", help(f, nodes)}
}

// help says what would help most: the node that lacks capacity alone.
func help(f Facts, nodes []NodeAnswer) string {
	var best *NodeAnswer
	var most inventory.Bytes = -1
	for i, n := range nodes {
		if n.Largest != nil && *n.Largest > most && len(schedulingObstacles(f, nodeNamed(f, n.Node))) == 0 {
			best, most = &nodes[i], *n.Largest
		}
	}
	switch {
	case best == nil:
		return "remove the obstacle of one of the nodes"
	case most == 0:
		return fmt.Sprintf("add disks or a %s to %s", groupOf(f.Class), best.Node)
	}
	return fmt.Sprintf("request at most %s, or add disks to %s or delete volumes there", most, best.Node)
}

func nodeNamed(f Facts, name string) *corev1.Node {
	for i := range f.Nodes {
		if f.Nodes[i].Node.Name == name {
			return &f.Nodes[i].Node
		}
	}
	return &corev1.Node{}
}
