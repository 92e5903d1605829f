package pending

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

const gib = lvm.Bytes(1 << 30)

// twoNodes is a claim of 6 GiB with its pod, and two nodes with 10 and 8 GiB.
func twoNodes() Facts {
	f := Facts{
		Class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: api.DriverName,
			Parameters: map[string]string{api.ParameterVolumeGroup: "vg-data"}, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)},
		Pods:         []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}}},
		OtherVolumes: map[string]string{},
	}
	f.Claim.Namespace, f.Claim.Name, f.Claim.Spec.StorageClassName = "shop", "data", ptr.To("local")
	f.Claim.Annotations = map[string]string{}
	f.Claim.Status.Phase = corev1.ClaimPending
	f.Claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("6Gi")}
	for name, size := range map[string]lvm.Bytes{"node-1": 10 * gib, "node-2": 8 * gib} {
		f.Nodes = append(f.Nodes, Node{
			Node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.TopologyKey: name, "disks": name}},
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}},
			Offers: []report.Offer{{Group: "vg-data", Available: size, Largest: size}},
		})
	}
	return f
}

// eachNode changes both nodes.
func eachNode(f *Facts, change func(n *Node)) {
	for i := range f.Nodes {
		change(&f.Nodes[i])
	}
}

// text is an answer in one line.
func text(a Answer) string {
	var parts []string
	for _, c := range a.Causes {
		parts = append(parts, c.Text, "fix: "+c.Fix)
	}
	for _, n := range a.Nodes {
		parts = append(parts, n.Node+": "+strings.Join(n.Obstacles, "; "))
	}
	return strings.Join(parts, "\n")
}

// expectTexts fails the test unless the explanation, which it returns, has all of these texts.
func expectTexts(t *testing.T, name string, f Facts, want []string) (got string) {
	t.Helper()
	got = text(Explain(f))
	for _, text := range want {
		if !strings.Contains(got, text) {
			t.Errorf("%s: no %q in\n%s", name, text, got)
		}
	}
	return got
}

func TestCauses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *Facts)
		want   []string
	}{
		"bound": {func(f *Facts) { f.Claim.Status.Phase, f.Claim.Spec.VolumeName = corev1.ClaimBound, "pvc-1" }, []string{"bound to pvc-1"}},
		"lost":  {func(f *Facts) { f.Claim.Status.Phase, f.Claim.Spec.VolumeName = corev1.ClaimLost, "pvc-1" }, []string{"pvc-1 was deleted"}},
		"lost while it moves": {func(f *Facts) {
			f.Claim.Status.Phase, f.Claim.Annotations = corev1.ClaimLost, map[string]string{api.AnnotationMoveStatus: `{"phase": "Switching", "from": "node-1", "to": "node-2"}`}
		}, []string{"moves from node-1 to node-2, and its PersistentVolume does not exist in between"}},
		"lost while it moves, which no status says": {func(f *Facts) {
			f.Claim.Status.Phase, f.Claim.Annotations = corev1.ClaimLost, map[string]string{api.AnnotationMoveTo: "node-3", api.AnnotationSelectedNode: "node-2",
				api.AnnotationMoveStatus: `{"phase": "Moved", "from": "node-1", "to": "node-2"}`}
		}, []string{"moves from node-2 to node-3, and its PersistentVolume does not exist in between", "keep the claim"}},
		"lost after its move": {func(f *Facts) {
			f.Claim.Status.Phase, f.Claim.Spec.VolumeName = corev1.ClaimLost, "pvc-1"
			f.Claim.Annotations = map[string]string{api.AnnotationMoveTo: "node-2", api.AnnotationSelectedNode: "node-2"}
		}, []string{"pvc-1 was deleted"}},
		"no class":          {func(f *Facts) { f.Claim.Spec.StorageClassName, f.Class = nil, nil }, []string{"names no StorageClass", "storageClassName"}},
		"missing class":     {func(f *Facts) { f.Class = nil }, []string{`StorageClass "local" does not exist`, "fix: create it"}},
		"another driver":    {func(f *Facts) { f.Class.Provisioner = "ebs.csi.aws.com" }, []string{"belongs to the driver ebs.csi.aws.com"}},
		"immediate binding": {func(f *Facts) { f.Class.VolumeBindingMode = nil }, []string{"binds immediately", "WaitForFirstConsumer"}},
		"misspelt parameter": {func(f *Facts) {
			eachNode(f, func(n *Node) {
				n.Refused, n.Offers = `unknown parameter "volumegroup" (did you mean volumeGroup?)`, nil
			})
		}, []string{"did you mean volumeGroup?", "fix: delete StorageClass local and create it again"}},
		"refused on one node": {func(f *Facts) {
			f.Claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("20Gi")
			f.Nodes[0].Refused = "no such parameter"
		}, []string{"no node can have the volume", "its driver refuses the class: no such parameter"}},
		"deleted":         {func(f *Facts) { f.Claim.DeletionTimestamp = &metav1.Time{Time: now} }, []string{"the claim is being deleted"}},
		"no pod":          {func(f *Facts) { f.Pods = nil }, []string{"no pod uses the claim"}},
		"nodeName":        {func(f *Facts) { f.Pods[0].Spec.NodeName = "node-1" }, []string{"spec.nodeName", "nodeSelector"}},
		"scheduling gate": {func(f *Facts) { f.Pods[0].Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "queue"}} }, []string{"scheduling gate queue"}},
		"missing source":  {func(f *Facts) { f.Source = &Source{Kind: "VolumeSnapshot", Name: "s", Missing: true} }, []string{"VolumeSnapshot s, does not exist"}},
		"source not ready": {func(f *Facts) { f.Source = &Source{Kind: "VolumeSnapshot", Name: "s", NotReady: true} },
			[]string{"VolumeSnapshot s, is not ready", "kubectl -n shop describe volumesnapshot s"}},
		"no driver":                {func(f *Facts) { f.Nodes = nil }, []string{"runs on no node", "doctor"}},
		"scheduler that is silent": {func(*Facts) {}, []string{"node-1 has capacity for the volume; why no node is selected is unknown: the scheduler (default-scheduler) has written nothing about pod db-0", "kubectl -n shop describe pod db-0"}},
		"scheduler": {func(f *Facts) {
			f.Pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Message: "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found."}}
		}, []string{"node-1 has capacity for the volume; the scheduler says of pod db-0: 0/2 nodes are available: 2 Insufficient cpu\n"}},
		"scheduler that knows less capacity": {func(f *Facts) {
			f.Pods[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Message: "0/2 nodes are available: 2 node(s) did not have enough free storage."}}
		}, []string{"node-1 has capacity for the volume; the scheduler says of pod db-0: 0/2 nodes are available: 2 node(s) did not have enough free storage\n" +
			"fix: kubectl nodelvm doctor says whether node-1 publishes its capacity; otherwise resolve what the scheduler names"}},
		"selected": {func(f *Facts) { f.Claim.Annotations[api.AnnotationSelectedNode] = "node-2" },
			[]string{"node node-2 is selected for the volume, and nothing on it prevents the volume; why it does not exist yet is unknown", "logs POD -c csi-provisioner"}},
		"selected node that does not exist": {func(f *Facts) { f.Claim.Annotations[api.AnnotationSelectedNode] = "node-9" },
			[]string{"there is no such node: no driver creates the volume", "kubectl -n shop annotate pvc data volume.kubernetes.io/selected-node-"}},
		"selected node that cannot have it": {func(f *Facts) {
			f.Claim.Annotations[api.AnnotationSelectedNode] = "node-2"
			nodeNamed(*f, "node-2").Offers[0].Largest = gib
		}, []string{"node node-2 is selected for the volume: volume group vg-data has 8 GiB free, but capacity for a volume of at most 1 GiB"}},
		"csi-provisioner that crashes": {func(f *Facts) {
			f.Claim.Annotations[api.AnnotationSelectedNode] = "node-2"
			nodeNamed(*f, "node-2").Provisioner, nodeNamed(*f, "node-2").Pod = "its container csi-provisioner waits (CrashLoopBackOff)", "nodelvm-x"
		}, []string{"node node-2 is selected for the volume: csi-provisioner does not run there: its container csi-provisioner waits (CrashLoopBackOff)", "fix: let csi-provisioner in the driver's pod nodelvm-x run"}},
		"class that the caller knows to be wrong": {func(f *Facts) {
			f.ClassFaults = []Cause{{"the admission policy does not name the class", "add it"}}
		}, []string{"the admission policy does not name the class\nfix: add it"}},
		"nodeSelector": {func(f *Facts) { f.Pods[0].Spec.NodeSelector = map[string]string{"disktype": "ssd"} },
			[]string{"no node can have the volume\nfix: change the nodeSelector disktype=ssd of pod db-0, or label a node with it\n"}},
		"node that does not answer": {func(f *Facts) {
			nodeNamed(*f, "node-1").Unknown = "the driver (pod x) does not answer"
			nodeNamed(*f, "node-2").Offers = nil
		}, []string{"no node whose driver reports its capacity can have the volume; of node-1 that is unknown"}},
		"too large": {func(f *Facts) { f.Claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("20Gi") },
			[]string{"no node can have the volume", "fix: request at most 10 GiB, or add disks to node-1", "node-1: volume group vg-data has capacity for a volume of at most 10 GiB, and the claim requests 20 GiB",
				"node-2: volume group vg-data has capacity for a volume of at most 8 GiB, and the claim requests 20 GiB"}},
		"no run of extents": {func(f *Facts) { eachNode(f, func(n *Node) { n.Offers[0].Largest = 3 * gib }) },
			[]string{"free, but capacity for a volume of at most 3 GiB with this class, and the claim requests 6 GiB", "request at most 3 GiB"}},
		"missing group": {func(f *Facts) { eachNode(f, func(n *Node) { n.Offers = nil }) }, []string{`it has no volume group "vg-data"`, `fix: add disks or a volume group "vg-data" to node-1`}},
		"tag removed": {func(f *Facts) {
			f.Class.Parameters[api.ParameterVolumeGroup] = "@fast"
			eachNode(f, func(n *Node) { n.Offers = nil })
		}, []string{`it has no volume group with the LVM tag "fast"`}},
		"obstacle of a group": {func(f *Facts) {
			eachNode(f, func(n *Node) { n.Offers[0] = report.Offer{Group: "vg-data", Obstacle: "a disk is missing"} })
		}, []string{"volume group vg-data: a disk is missing", "fix: resolve what keeps volume group vg-data of node-1 from use\n"}},
		"wiping": {func(f *Facts) {
			eachNode(f, func(n *Node) { n.Offers[0].Largest, n.Offers[0].Available, n.Wiping = gib, gib, 5*gib })
		}, []string{"5 GiB of deleted volumes become free"}},
	} {
		f := twoNodes()
		test.change(&f)
		expectTexts(t, name, f, test.want)
	}
}

func TestNodeObstacles(t *testing.T) {
	for want, change := range map[string]func(f *Facts, n *Node){
		"the node is not Ready: kubelet stopped": func(_ *Facts, n *Node) {
			n.Node.Status.Conditions[0].Status, n.Node.Status.Conditions[0].Message = corev1.ConditionUnknown, "kubelet stopped"
		},
		"the node is cordoned: kubectl uncordon": func(_ *Facts, n *Node) { n.Node.Spec.Unschedulable = true },
		"the node is cordoned": func(_ *Facts, n *Node) {
			n.Node.Spec.Unschedulable, n.Node.Spec.Taints = true, []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		},
		"pod db-0 does not tolerate its taint dedicated=gpu:NoSchedule": func(_ *Facts, n *Node) {
			n.Node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
		},
		"the nodeSelector or node affinity of pod db-0 excludes it": func(f *Facts, _ *Node) { f.Pods[0].Spec.NodeSelector = map[string]string{"disks": "other"} },
		"allowedTopologies of the StorageClass excludes it": func(f *Facts, _ *Node) {
			f.Class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "disks", Values: []string{"other"}}}}}
		},
		"excludes it": func(f *Facts, n *Node) { // the scheduler allows it, and csi-provisioner does not
			n.Node.Labels["zone"] = "a"
			f.Class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"a"}}}}}
		},
		"the pod also uses claim log, whose volume is on node-9": func(f *Facts, _ *Node) { f.OtherVolumes["log"] = "node-9" },
		"a copy is on the disks of its source, and VolumeSnapshot s is on node-9": func(f *Facts, _ *Node) {
			f.Source = &Source{Kind: "VolumeSnapshot", Name: "s", Node: "node-9"}
		},
		"the driver in pod x does not answer": func(_ *Facts, n *Node) { n.NoVolumes = "the driver in pod x does not answer" },
	} {
		f := twoNodes()
		eachNode(&f, func(n *Node) { change(&f, n) })
		a := Explain(f)
		for _, n := range a.Nodes {
			if got := strings.Join(n.Obstacles, "; "); !strings.Contains(got, want) {
				t.Errorf("%s: %q lacks %q", n.Node, got, want)
			}
		}
		if a.Causes[0].Text != "no node can have the volume" {
			t.Errorf("%s: the cause is %q", want, a.Causes[0].Text)
		}
	}
}

// anyOf is a pod whose node affinity has so many terms. None selects a node of twoNodes.
func anyOf(terms int) *corev1.Affinity {
	s := &corev1.NodeSelector{}
	for i := range terms {
		s.NodeSelectorTerms = append(s.NodeSelectorTerms, corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: fmt.Sprintf("disks-%d", i), Operator: corev1.NodeSelectorOpExists}}})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}}
}

// TestLargeAffinity: a tenant writes thousands of expressions. An affinity is parsed once, whatever the number of nodes. One that is too large is no
// obstacle, as nothing is known of it, and the pod's other rules count.
func TestLargeAffinity(t *testing.T) {
	f := twoNodes()
	f.Pods[0].Spec.Affinity = anyOf(expressionsCompared)
	if got := text(Explain(f)); !strings.Contains(got, "affinity of pod db-0 excludes it") {
		t.Errorf("of as many expressions as are compared: %s", got)
	}
	few := testing.AllocsPerRun(1, func() { Explain(f) })
	f.Nodes = slices.Repeat(f.Nodes, 50)
	if many := testing.AllocsPerRun(1, func() { Explain(f) }); many-few > 98*expressionsCompared/4 {
		t.Errorf("%.0f allocations for 2 nodes, %.0f for 100: the affinity is parsed for each", few, many)
	}
	f = twoNodes()
	f.Pods[0].Spec.Affinity = anyOf(expressionsCompared + 1)
	if got := text(Explain(f)); strings.Contains(got, "excludes it") {
		t.Errorf("of more expressions: %s", got)
	}
	f.Pods[0].Spec.NodeSelector = map[string]string{"disks": "other"}
	if got := text(Explain(f)); !strings.Contains(got, "affinity of pod db-0 excludes it") {
		t.Errorf("with a node selector too: %s", got)
	}
}

func TestToleratedTaintIsNoObstacle(t *testing.T) {
	f := twoNodes()
	f.Pods[0].Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	eachNode(&f, func(n *Node) {
		n.Node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}, {Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}}
	})
	for _, n := range Explain(f).Nodes {
		if len(n.Obstacles) > 0 {
			t.Errorf("%s: %q", n.Node, n.Obstacles)
		}
	}
}
