package pending

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

// PodFacts are what ExplainPod needs to know of a pod whose claims all have their volumes.
type PodFacts struct {
	Pod     corev1.Pod
	Volumes map[string]string // Nodes of this driver's volumes, by claim; "": the volume does not name one node.
	Deleted []string          // Its claims that are being deleted.
	Moving  map[string]string // Its claims whose volumes move: the nodes that get them.
	Nodes   []corev1.Node
	Events  []corev1.Event // About the pod.
	Unread  []string       // Sentences: what the caller could not read.
	Now     time.Time
}

// ExplainPod says why a pod does not start although its claims have their volumes.
func ExplainPod(f PodFacts) Answer {
	pod := &f.Pod
	a := Answer{Pod: pod.Namespace + "/" + pod.Name, Nodes: []NodeAnswer{}, Unread: f.Unread}
	switch {
	case pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "":
		a.Causes = []Cause{{Text: fmt.Sprintf("the pod does not wait for a volume: it is %s on %s", pod.Status.Phase, pod.Spec.NodeName)}}
	case pod.DeletionTimestamp != nil:
		a.Causes = []Cause{{Text: "the pod is being deleted"}}
	case pod.Spec.NodeName != "":
		a.Causes = []Cause{kubeletCause(f)}
	case len(pod.Spec.SchedulingGates) > 0:
		a.Causes = gateCauses(pod)
	case len(f.Deleted) > 0:
		a.Causes = []Cause{{fmt.Sprintf("its claim %s is being deleted: the scheduler places no pod that uses it", f.Deleted[0]),
			"delete the pod too: the claim goes with the last pod that uses it"}}
	case len(f.Moving) > 0:
		a.Causes = []Cause{movingCause(f)}
	default:
		a.Causes = []Cause{placeCause(f)}
	}
	return a
}

// movingCause is about a pod that waits because a volume moves: no node may have it before the end.
func movingCause(f PodFacts) Cause {
	claim := slices.Sorted(maps.Keys(f.Moving))[0]
	return Cause{fmt.Sprintf("the volume of its claim %s moves to %s, and no pod can start with it until then", claim, f.Moving[claim]),
		fmt.Sprintf("wait; what the move waits for: kubectl nodelvm moves -n %s", f.Pod.Namespace)}
}

// placeCause says why no node is selected for the pod.
func placeCause(f PodFacts) Cause {
	byNode := map[string][]string{}
	for _, claim := range slices.Sorted(maps.Keys(f.Volumes)) {
		byNode[f.Volumes[claim]] = append(byNode[f.Volumes[claim]], claim)
	}
	describe := fmt.Sprintf("kubectl -n %s describe pod %s", f.Pod.Namespace, f.Pod.Name)
	if claims, some := byNode[""]; some {
		return Cause{fmt.Sprintf("the volume of claim %s does not name one node by %s", claims[0], api.TopologyKey), "see docs/howto/adopt.md"}
	}
	nodes := slices.Sorted(maps.Keys(byNode))
	switch len(nodes) {
	case 0:
		return Cause{cmp.Or(schedulerMessage(&f.Pod), "the scheduler has written nothing about the pod"), describe}
	case 1:
		return nodeCause(f, nodes[0], byNode[nodes[0]], describe)
	}
	var parts []string
	for _, node := range nodes {
		parts = append(parts, fmt.Sprintf("%s on %s", strings.Join(byNode[node], ", "), node))
	}
	return Cause{"its volumes are on different nodes, so no node can run it: claims " + strings.Join(parts, ", claims "),
		"move the volumes of one node to the other: docs/howto/move.md. Or, if you can lose their data, delete their claims and the pod: they are then created on the other node"}
}

// nodeCause says what keeps the pod from the only node that has its volumes.
func nodeCause(f PodFacts, name string, claims []string, describe string) Cause {
	its := fmt.Sprintf("its volume (claim %s) is on %s", claims[0], name)
	if len(claims) > 1 {
		its = fmt.Sprintf("its volumes (claims %s) are on %s", strings.Join(claims, ", "), name)
	}
	i := slices.IndexFunc(f.Nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return Cause{its + ", which is deleted: the cluster has no such node", "bring the node back, or see docs/howto/lost-nodes.md"}
	}
	var texts, fixes []string
	if why := notReady(&f.Nodes[i]); why != "" {
		texts, fixes = append(texts, "which is not Ready ("+why+")"), append(fixes, "kubectl describe node "+name+"; if it does not come back: docs/howto/lost-nodes.md")
	}
	for _, o := range ruleOf(&f.Pod).obstacles(&f.Nodes[i]) {
		text, ofNode := strings.CutPrefix(o.text, "the node is ")
		if ofNode {
			text = "which is " + text
		} else {
			text = "where " + text
		}
		texts, fixes = append(texts, text), append(fixes, o.fix)
	}
	for _, o := range labelObstacles(&f.Nodes[i]) {
		texts, fixes = append(texts, "but "+o.text), append(fixes, o.fix)
	}
	said := schedulerMessage(&f.Pod)
	switch lacks := lacksOf(said); {
	case len(texts) > 0:
		return Cause{its + ", " + strings.Join(texts, ", "), strings.Join(fixes, "; ")}
	case lacks != "":
		return Cause{its + ", which " + lacks, "change that on " + name + ", change the pod, or move the volume: docs/howto/move.md"}
	case said != "":
		return Cause{its + "; the scheduler says: " + said, "resolve what it says of " + name + ", or move the volume: docs/howto/move.md"}
	}
	return Cause{its + "; why the pod is not scheduled there is unknown: the scheduler has written nothing about it", "if that lasts: " + describe}
}

// kubeletCause says what the kubelet of the pod's node reports.
func kubeletCause(f PodFacts) Cause {
	describe := fmt.Sprintf("kubectl -n %s describe pod %s", f.Pod.Namespace, f.Pod.Name)
	e := lastEvent(f.Events, func(e corev1.Event) bool { return e.Type == corev1.EventTypeWarning && e.Reason != "FailedScheduling" })
	if e != nil {
		return Cause{fmt.Sprintf("it is assigned to %s; %s, %s: %s", f.Pod.Spec.NodeName, e.Reason, timesAndAge(e, f.Now), cutMessage(e.Message)), "follow the message; all events: " + describe}
	}
	for _, c := range slices.Concat(f.Pod.Status.InitContainerStatuses, f.Pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
			return Cause{fmt.Sprintf("it is assigned to %s; its container %s waits: %s %s", f.Pod.Spec.NodeName, c.Name, w.Reason, cutMessage(w.Message)), describe}
		}
	}
	why := "it has no warning"
	if len(f.Unread) > 0 {
		why = "not all could be read"
	}
	return Cause{fmt.Sprintf("it is assigned to %s; why it does not run yet is unknown: %s", f.Pod.Spec.NodeName, why), "if that lasts: " + describe}
}

func gateCauses(pod *corev1.Pod) (causes []Cause) {
	for _, gate := range pod.Spec.SchedulingGates {
		causes = append(causes, Cause{fmt.Sprintf("pod %s has the scheduling gate %s", pod.Name, gate.Name), "wait for the controller that removes it"})
	}
	return causes
}

// IsBuiltIn reports whether a pod's controller is one of Kubernetes' own.
func IsBuiltIn(owner *metav1.OwnerReference) bool {
	all := []string{"v1 ReplicationController", "apps/v1 DaemonSet", "apps/v1 ReplicaSet", "apps/v1 StatefulSet", "batch/v1 Job"}
	return slices.Contains(all, owner.APIVersion+" "+owner.Kind)
}

// ExplainMissing is about a claim that a pod uses and that does not exist.
func ExplainMissing(pod *corev1.Pod, claim string) Answer {
	c := Cause{fmt.Sprintf("claim %s does not exist, and pod %s waits for it", claim, pod.Name),
		"create it, or delete the pod if its controller creates both; a ResourceQuota may refuse the claim: see the events of the pod's controller"}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" && IsBuiltIn(owner) {
		c.Fix = fmt.Sprintf("create it, or, if an operator creates %s %s with its claims, delete that: it creates only the pod again", owner.Kind, owner.Name)
	}
	if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil && ClaimName(pod, v) == claim }) {
		c = Cause{fmt.Sprintf("claim %s of an ephemeral volume of pod %s does not exist; kube-controller-manager creates it", claim, pod.Name),
			fmt.Sprintf("if that lasts: kubectl -n %s describe pod %s (a ResourceQuota may refuse it)", pod.Namespace, pod.Name)}
	}
	return Answer{Claim: pod.Namespace + "/" + claim, Pods: []string{pod.Name}, Causes: []Cause{c}, Nodes: []NodeAnswer{}}
}
