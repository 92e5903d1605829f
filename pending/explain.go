package pending

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// Explain says why the claim has no volume: causes first that no node can change, then each node.
func Explain(f Facts) Answer {
	a := Answer{Claim: f.Claim.Namespace + "/" + f.Claim.Name, Class: classOf(f.Claim), Size: requestOf(f.Claim).String(), Causes: []Cause{}, Nodes: []NodeAnswer{}, Unread: f.Unread}
	for _, pod := range f.Pods {
		a.Pods = append(a.Pods, pod.Name)
	}
	if bound := boundCause(f.Claim); bound != nil {
		a.Causes = append(a.Causes, *bound)
		return a
	}
	f.rules = rulesOf(f.Pods)
	refused, last := refusedByAll(f.Nodes), refusalOf(f)
	for _, n := range f.Nodes {
		a.Nodes = append(a.Nodes, explainNode(f, n, refused != ""))
	}
	slices.SortFunc(a.Nodes, func(x, y NodeAnswer) int {
		return cmp.Or(cmp.Compare(len(x.Obstacles), len(y.Obstacles)), strings.Compare(x.Node, y.Node))
	})
	class, objects := classCauses(f, refused), slices.Concat(podCauses(f), sourceCauses(f))
	a.Causes = append(a.Causes, class...)
	if f.Source != nil && f.Source.Foreign != "" {
		last = nil // csi-provisioner does not know the source, and says that it does not exist
	}
	if last != nil && (refused == "" || !strings.Contains(last.text, refused)) {
		a.Causes = append(a.Causes, last.cause(f))
	}
	a.Causes = append(a.Causes, slices.Concat(warningCauses(f), objects)...)
	if len(class)+len(objects) == 0 {
		a.Causes = append(a.Causes, nodesCause(f, a.Nodes, last)...)
	}
	return a
}

func boundCause(claim corev1.PersistentVolumeClaim) *Cause {
	switch claim.Status.Phase {
	case corev1.ClaimBound:
		return &Cause{Text: "the claim does not wait: it is bound to " + claim.Spec.VolumeName}
	case corev1.ClaimPending:
	case corev1.ClaimLost:
		s, _ := api.MoveStatusOf(claim.Annotations)
		if to, on := claim.Annotations[api.AnnotationMoveTo], claim.Annotations[api.AnnotationSelectedNode]; to != "" && to != on && !s.IsUnderWay() {
			s = api.MoveStatus{Phase: api.MovePreparing, From: on, To: to} // the drivers write it later
		}
		if s.IsUnderWay() {
			return &Cause{Text: fmt.Sprintf("the claim's volume moves from %s to %s, and its PersistentVolume does not exist in between", s.From, s.To),
				Fix: "wait, and keep the claim: its data is on these nodes; if that lasts: kubectl nodelvm moves -n " + claim.Namespace}
		}
		return &Cause{Text: "the claim's PersistentVolume " + claim.Spec.VolumeName + " was deleted",
			Fix: "if the volume is still on its node (kubectl nodelvm orphans), delete the claim and adopt the volume with it: docs/howto/adopt.md; otherwise delete the claim with its pods, and create it again"}
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
		case n.NoVolumes != "", n.Unknown != "":
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
	case len(f.ClassFaults) > 0:
		return f.ClassFaults
	case refusal != "":
		return []Cause{{refusal, fmt.Sprintf("delete StorageClass %s and create it again with correct parameters: they cannot be changed; its claims can stay", name)}}
	}
	return nil
}

func podCauses(f Facts) []Cause {
	if f.Claim.DeletionTimestamp != nil {
		return []Cause{{"the claim is being deleted", "delete the pods that use it, and create it again if it is needed"}}
	}
	if len(f.Pods) == 0 {
		return []Cause{{"no pod uses the claim: the scheduler chooses the node with the first pod", "create a pod that uses it"}}
	}
	var causes []Cause
	for _, pod := range f.Pods {
		if pod.Spec.NodeName != "" && f.Claim.Annotations[api.AnnotationSelectedNode] == "" {
			causes = append(causes, Cause{fmt.Sprintf("pod %s names its node %s in spec.nodeName, so the scheduler never sees it and chooses no node for the claim", pod.Name, pod.Spec.NodeName),
				"use a nodeSelector with kubernetes.io/hostname instead of nodeName"})
		}
		causes = append(causes, gateCauses(&pod)...)
	}
	return causes
}

// nodesCause sums up the nodes; last is the last refusal, or nil.
func nodesCause(f Facts, nodes []NodeAnswer, last *refusal) []Cause {
	selected := f.Claim.Annotations[api.AnnotationSelectedNode]
	i := slices.IndexFunc(nodes, func(n NodeAnswer) bool { return n.Node == selected })
	switch {
	case len(nodes) == 0:
		return []Cause{{"nodelvm's driver runs on no node", "kubectl nodelvm doctor"}}
	case selected != "" && i < 0:
		return []Cause{{fmt.Sprintf("node %s is selected for the volume, and there is no such node: no driver creates the volume", selected),
			fmt.Sprintf("kubectl -n %s annotate pvc %s %s-", f.Claim.Namespace, f.Claim.Name, api.AnnotationSelectedNode)}}
	case i >= 0 && len(nodes[i].Obstacles) == 0:
		return selectedCause(f, selected, last)
	case i >= 0 && (len(nodes[0].Obstacles) == 0 || nodes[i].Unknown || nodeNamed(f, selected).Provisioner != ""):
		return []Cause{{fmt.Sprintf("node %s is selected for the volume: %s", selected, strings.Join(nodes[i].Obstacles, "; ")), strings.Join(nodes[i].fixes, "; ")}}
	case len(nodes[0].Obstacles) == 0:
		return []Cause{schedulerCause(f, nodes[0].Node)}
	}
	if unknown := slices.IndexFunc(nodes, func(n NodeAnswer) bool { return n.Unknown }); unknown >= 0 {
		return []Cause{{"no node whose driver reports its capacity can have the volume; of " + nodes[unknown].Node + " that is unknown", help(f, nodes)}}
	}
	return []Cause{{"no node can have the volume", help(f, nodes)}}
}

// selectedCause is about a selected node on which nothing prevents the volume. The driver's refusal says more, if there is one.
func selectedCause(f Facts, node string, last *refusal) []Cause {
	if last != nil {
		return nil
	}
	log := fmt.Sprintf("see the log of csi-provisioner there: kubectl -n %s logs %s -c csi-provisioner", cmp.Or(f.Namespace, "NAMESPACE"), cmp.Or(nodeNamed(f, node).Pod, "POD"))
	if e := lastEvent(f.Events, func(e corev1.Event) bool { return e.Reason == "Provisioning" }); e != nil {
		return []Cause{{fmt.Sprintf("node %s is selected for the volume; csi-provisioner asked the driver for it %s, and no event has the answer", node, timesAndAge(e, f.Now)), "if that lasts, " + log}}
	}
	why := "the claim has no event of csi-provisioner"
	if len(f.Unread) > 0 {
		why = "not all could be read"
	}
	return []Cause{{fmt.Sprintf("node %s is selected for the volume, and nothing on it prevents the volume; why it does not exist yet is unknown: %s", node, why), "if that lasts, " + log}}
}

// schedulerCause is about a node that can have the volume and is not selected: what the scheduler says.
func schedulerCause(f Facts, node string) Cause {
	can := node + " has capacity for the volume"
	if len(f.Waiting) > 0 {
		can = node + " has capacity for each waiting claim of the pod" // a plan of all together only the driver makes
	}
	for i := range f.Pods {
		if text := schedulerMessage(&f.Pods[i]); text != "" {
			return Cause{fmt.Sprintf("%s; the scheduler says of pod %s: %s", can, f.Pods[i].Name, text), schedulerFix(text, node)}
		}
	}
	return Cause{fmt.Sprintf("%s; why no node is selected is unknown: the scheduler (%s) has written nothing about pod %s", can, cmp.Or(f.Pods[0].Spec.SchedulerName, corev1.DefaultSchedulerName), f.Pods[0].Name),
		fmt.Sprintf("if that lasts: kubectl -n %s describe pod %s", f.Claim.Namespace, f.Pods[0].Name)}
}

// schedulerFix is the remedy for what the scheduler says, although the driver of a node reports capacity: the scheduler knows only what the node
// publishes.
func schedulerFix(text, node string) string {
	if strings.Contains(text, "enough free storage") {
		return "kubectl nodelvm doctor says whether " + node + " publishes its capacity; otherwise resolve what the scheduler names"
	}
	return "resolve what the scheduler names"
}

// help says what would help most: on the node whose disks alone are the obstacle; without one, on the node with the fewest obstacles.
func help(f Facts, nodes []NodeAnswer) string {
	best, most := 0, lvm.Bytes(-1)
	for i, n := range nodes {
		node := nodeNamed(f, n.Node)
		if n.Largest != nil && room(f, *node) > most && len(schedulingObstacles(f, &node.Node)) == 0 {
			best, most = i, room(f, *node)
		}
	}
	return strings.Join(nodes[best].fixes, "; ")
}

func nodeNamed(f Facts, name string) *Node {
	for i := range f.Nodes {
		if f.Nodes[i].Node.Name == name {
			return &f.Nodes[i]
		}
	}
	return &Node{}
}
