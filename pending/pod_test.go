package pending

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

// boundPod is a Pending pod whose only volume is on node-3, in a cluster where nothing prevents it.
func boundPod() PodFacts {
	f := PodFacts{Volumes: map[string]string{"data": "node-3"}, Now: now}
	f.Pod.Namespace, f.Pod.Name, f.Pod.Status.Phase = "shop", "db-0", corev1.PodPending
	for _, name := range []string{"node-1", "node-3"} {
		f.Nodes = append(f.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.TopologyKey: name}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	return f
}

// unschedulable lets the scheduler say so.
func unschedulable(message string) func(f *PodFacts) {
	return func(f *PodFacts) {
		f.Pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message}}
	}
}

func TestPodWhoseClaimsAreBound(t *testing.T) {
	const others = ", 2 node(s) didn't match PersistentVolume's node affinity. no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
	for want, change := range map[string]func(f *PodFacts){
		"its volume (claim data) is on node-3, which is cordoned: kubectl uncordon node-3\nfix: kubectl uncordon node-3": func(f *PodFacts) { f.Nodes[1].Spec.Unschedulable = true },
		"its volume (claim data) is on node-3, which is not Ready (kubelet stopped)": func(f *PodFacts) {
			f.Nodes[1].Status.Conditions[0].Status, f.Nodes[1].Status.Conditions[0].Message = corev1.ConditionUnknown, "kubelet stopped"
		},
		"its volume (claim data) is on node-3, which is not Ready (kubelet gave up)\nfix: kubectl describe node node-3; if it does not come back: docs/howto/lost-nodes.md\n": func(f *PodFacts) {
			f.Nodes[1].Status.Conditions[0].Status, f.Nodes[1].Status.Conditions[0].Message = corev1.ConditionUnknown, "kubelet gave up"
			f.Nodes[1].Spec.Taints = []corev1.Taint{
				{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}, {Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule},
			}
		},
		"its volume (claim data) is on node-3, which is deleted: the cluster has no such node\nfix: bring the node back":                                                                      func(f *PodFacts) { f.Nodes = f.Nodes[:1] },
		"its volume (claim data) is on node-3, which lacks CPU\nfix: change that on node-3, change the pod, or move the volume: docs/howto/move.md\n":                                         unschedulable("0/3 nodes are available: 1 Insufficient cpu" + others),
		"its volume (claim data) is on node-3, which is excluded by the pod's anti-affinity\n":                                                                                                unschedulable("0/3 nodes are available: 1 node(s) didn't match pod anti-affinity rules" + others),
		"is on node-3; the scheduler says: 0/3 nodes are available: 2 Insufficient cpu, 1 Insufficient memory\nfix: resolve what it says of node-3, or move the volume: docs/howto/move.md\n": unschedulable("0/3 nodes are available: 2 Insufficient cpu, 1 Insufficient memory. preemption: none"),
		"why the pod is not scheduled there is unknown": func(*PodFacts) {},
		"pod db-0 does not tolerate its taint a:NoSchedule": func(f *PodFacts) {
			f.Nodes[1].Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		},
		"its volumes are on different nodes, so no node can run it: claims log, wal on node-1, claims data on node-3\nfix: move the volumes of one node to the other: docs/howto/move.md": func(f *PodFacts) {
			f.Volumes["log"], f.Volumes["wal"] = "node-1", "node-1"
		},
		"the volume of its claim data moves to node-9, and no pod can start with it until then\nfix: wait; what the move waits for: kubectl nodelvm moves -n ": func(f *PodFacts) {
			f.Moving = map[string]string{"data": "node-9"}
			unschedulable("0/3 nodes are available: 3 node(s) didn't match PersistentVolume's node affinity")(f)
		},
		"the volume of claim log does not name one node by topology.nodelvm.io/node": func(f *PodFacts) { f.Volumes["log"] = "" },
		"its claim data is being deleted: the scheduler places no pod that uses it":  func(f *PodFacts) { f.Deleted = []string{"data"} },
		"pod db-0 has the scheduling gate queue":                                     func(f *PodFacts) { f.Pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "queue"}} },
		"it is assigned to node-3; FailedMount, 3 times, last 6 s ago: the key in the Secret": func(f *PodFacts) {
			f.Pod.Spec.NodeName = "node-3"
			f.Events = []corev1.Event{event("FailedScheduling", "older", 60, 1), event("FailedMount", "the key in the Secret", 6, 3)}
		},
		"its container c waits: ImagePullBackOff": func(f *PodFacts) {
			f.Pod.Spec.NodeName = "node-3"
			f.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
		},
		"why it does not run yet is unknown: it has no warning": func(f *PodFacts) { f.Pod.Spec.NodeName = "node-3" },
		"does not wait for a volume: it is Running on node-3": func(f *PodFacts) {
			f.Pod.Spec.NodeName, f.Pod.Status.Phase = "node-3", corev1.PodRunning
		},
		"0/3 nodes are available: 3 Insufficient cpu": func(f *PodFacts) {
			f.Volumes = nil // of another driver
			unschedulable("0/3 nodes are available: 3 Insufficient cpu")(f)
		},
	} {
		f := boundPod()
		change(&f)
		if got := text(ExplainPod(f)); !strings.Contains(got+"\n", want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
