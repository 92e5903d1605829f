package pending

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// obstacle is what keeps a claim's volume from a node, and what removes it.
type obstacle struct{ text, fix string }

// explainNode lists what keeps the claim's volume from a node. refused: every node refuses the class' parameters, which is a cause of the
// claim and no obstacle of one node.
func explainNode(f Facts, n Node, refused bool) NodeAnswer {
	a := NodeAnswer{Node: n.Node.Name, Obstacles: []string{}, Unknown: n.Unknown != ""}
	found := schedulingObstacles(f, &n.Node)
	switch {
	case n.NoVolumes != "":
		found = append(found, obstacle{n.NoVolumes, "let nodelvm run on " + n.Node.Name})
	case n.Unknown != "":
		found = append(found, obstacle{n.Unknown, "find out why: kubectl nodelvm doctor"})
	case n.Refused != "" && !refused:
		found = append(found, obstacle{"its driver refuses the class: " + n.Refused, "correct StorageClass " + classOf(f.Claim) + " (delete it, and create it again)"})
	case n.Refused == "":
		largest := largestOf(n.Offers)
		a.Largest = &largest
		found = append(found, capacityObstacles(f, n, largest)...)
	}
	if n.NoVolumes == "" && n.CSINode != nil {
		found = append(found, registrationObstacles(&n.Node, n.CSINode)...)
	}
	if n.Provisioner != "" {
		found = append(found, obstacle{"csi-provisioner does not run there: " + n.Provisioner, "let csi-provisioner in the driver's pod " + n.Pod + " run"})
	}
	for _, o := range found {
		a.Obstacles = append(a.Obstacles, o.text)
		if !slices.Contains(a.fixes, o.fix) {
			a.fixes = append(a.fixes, o.fix)
		}
	}
	return a
}

// schedulingObstacles are those that do not depend on the node's disks.
func schedulingObstacles(f Facts, node *corev1.Node) (found []obstacle) {
	if why := notReady(node); why != "" {
		found = append(found, obstacle{"the node is not Ready: " + why, "kubectl describe node " + node.Name})
	}
	if f.Class != nil && !isAllowed(f.Class.AllowedTopologies, node.Labels) {
		found = append(found, obstacle{"allowedTopologies of the StorageClass excludes it", "delete StorageClass " + f.Class.Name + ", and create it again with other allowedTopologies (only the label " + api.TopologyKey + " counts)"})
	}
	if f.rules == nil {
		f.rules = rulesOf(f.Pods)
	}
	for _, rules := range f.rules {
		found = append(found, rules.obstacles(node)...)
	}
	for _, claim := range slices.Sorted(maps.Keys(f.OtherVolumes)) {
		if on := f.OtherVolumes[claim]; on != node.Name {
			found = append(found, obstacle{fmt.Sprintf("the pod also uses claim %s, whose volume is on %s", claim, on), "remove the obstacles of " + on})
		}
	}
	if f.Source != nil && f.Source.Node != "" && f.Source.Node != node.Name && !IsPlacedByScheduler(&f.Claim, f.Class) {
		found = append(found, obstacle{fmt.Sprintf("a copy is on the disks of its source, and %s %s is on %s", f.Source.Kind, f.Source.Name, f.Source.Node), "remove the obstacles of " + f.Source.Node})
	}
	return found
}

// notReady returns why a node is not Ready; "": it is.
func notReady(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return cmp.Or(c.Message, c.Reason, "its condition Ready is "+string(c.Status))
		}
	}
	return ""
}

// podRules are the rules of a pod for its node. To parse an affinity costs much more than to compare it with a node.
type podRules struct {
	*corev1.Pod
	affinity nodeaffinity.RequiredNodeAffinity
}

// expressionsCompared limits the expressions in the node affinity of a pod, with their values. With more than these nothing is known, and so no
// obstacle: a tenant writes thousands.
const expressionsCompared = 256

func ruleOf(pod *corev1.Pod) podRules {
	compared := pod
	if expressionsOf(pod) > expressionsCompared {
		compared = &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: pod.Spec.NodeSelector}}
	}
	return podRules{pod, nodeaffinity.GetRequiredNodeAffinity(compared)}
}

func rulesOf(pods []corev1.Pod) (rules []podRules) {
	for i := range pods {
		rules = append(rules, ruleOf(&pods[i]))
	}
	return rules
}

// expressionsOf counts the expressions and values in the required node affinity of a pod.
func expressionsOf(pod *corev1.Pod) (n int) {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return 0
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			n += 1 + len(e.Values)
		}
	}
	return n
}

// obstacles are what the scheduler would say of the pod on the node.
func (r podRules) obstacles(node *corev1.Node) (found []obstacle) {
	pod := r.Pod
	taint, there := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(taint *corev1.Taint) bool {
		return isHard(taint) && (notReady(node) == "" || !saysNotReady(taint))
	}, true)
	switch {
	case node.Spec.Unschedulable && (!there || taint.Key == corev1.TaintNodeUnschedulable):
		found = append(found, obstacle{"the node is cordoned: kubectl uncordon " + node.Name, "kubectl uncordon " + node.Name})
	case there:
		found = append(found, obstacle{fmt.Sprintf("pod %s does not tolerate its taint %s", pod.Name, taint.ToString()),
			fmt.Sprintf("let pod %s tolerate the taint %s, or remove it from %s", pod.Name, taint.ToString(), node.Name)})
	}
	match, err := r.affinity.Match(node)
	switch {
	case err != nil:
		found = append(found, obstacle{fmt.Sprintf("the node affinity of pod %s is invalid: %s", pod.Name, err), "correct the node affinity of pod " + pod.Name})
	case !match:
		found = append(found, obstacle{fmt.Sprintf("the nodeSelector or node affinity of pod %s excludes it", pod.Name), selectorFix(pod, node)})
	}
	return found
}

// selectorFix names the labels of the pod's nodeSelector that the node lacks.
func selectorFix(pod *corev1.Pod, node *corev1.Node) string {
	var lacking []string
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		if value, there := node.Labels[key]; !there || value != pod.Spec.NodeSelector[key] {
			lacking = append(lacking, key+"="+pod.Spec.NodeSelector[key])
		}
	}
	if len(lacking) == 0 {
		return "change the node affinity of pod " + pod.Name
	}
	return fmt.Sprintf("change the nodeSelector %s of pod %s, or label a node with it", strings.Join(lacking, ","), pod.Name)
}

// saysNotReady reports whether a taint only says that its node is not Ready. No pod runs there by tolerating it.
func saysNotReady(taint *corev1.Taint) bool {
	return slices.Contains([]string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeOutOfService}, taint.Key)
}

func isHard(taint *corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
}

// isAllowed reports whether a class' allowedTopologies select a node. csi-provisioner compares them with the driver's topology key alone: a
// term with any other label selects no node.
func isAllowed(terms []corev1.TopologySelectorTerm, of labels.Set) bool {
	if len(terms) == 0 {
		return true
	}
	return slices.ContainsFunc(terms, func(term corev1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			return e.Key != api.TopologyKey || !slices.Contains(e.Values, of[e.Key])
		})
	})
}

func largestOf(offers []report.Offer) (largest lvm.Bytes) {
	for _, offer := range offers {
		largest = max(largest, offer.Largest)
	}
	return largest
}

// capacityObstacles say why no volume group of the node has capacity for the claim, or for it and the pods' other waiting claims.
func capacityObstacles(f Facts, n Node, largest lvm.Bytes) (found []obstacle) {
	size, name := requestOf(f.Claim), n.Node.Name
	if len(n.Offers) == 0 && len(n.Ignored) > 0 { // one of them may have the group
		return []obstacle{{fmt.Sprintf("it has no %s, but its driver ignores what is on %s", groupOf(f.Class), strings.Join(n.Ignored, ", ")),
			"if that is a disk of " + name + " for the driver's volumes, accept it with the command that kubectl nodelvm doctor prints"}}
	}
	if len(n.Offers) == 0 {
		return []obstacle{{"it has no " + groupOf(f.Class), fmt.Sprintf("add disks or a %s to %s", groupOf(f.Class), name)}}
	}
	request := fmt.Sprintf("request at most %s, or add disks to %s or delete volumes there", room(f, n), name)
	if room(f, n) == 0 {
		request = fmt.Sprintf("add disks to %s, or delete volumes there", name)
	}
	if largest >= size {
		if together := togetherObstacle(f, n); together != "" {
			return []obstacle{{together, request}}
		}
		return nil
	}
	for _, offer := range n.Offers {
		switch {
		case offer.Group == "":
			found = append(found, obstacle{fmt.Sprintf("it has capacity for a volume of at most %s with this class, and the claim requests %s", offer.Largest, size), request})
		case offer.Obstacle != "":
			found = append(found, obstacle{fmt.Sprintf("volume group %s: %s", offer.Group, offer.Obstacle), fmt.Sprintf("resolve what keeps volume group %s of %s from use", offer.Group, name)})
		case offer.Available >= size:
			found = append(found, obstacle{fmt.Sprintf("volume group %s has %s free, but capacity for a volume of at most %s with this class, and the claim requests %s", offer.Group, offer.Available, offer.Largest, size), request})
		default:
			found = append(found, obstacle{fmt.Sprintf("volume group %s has capacity for a volume of at most %s, and the claim requests %s", offer.Group, offer.Largest, size), request})
		}
	}
	if n.Wiping > 0 {
		found = append(found, obstacle{fmt.Sprintf("%s of deleted volumes become free when the driver has zeroed them", n.Wiping), "wait for that"})
	}
	return found
}

// groupOf names the groups that a class selects.
func groupOf(class *storagev1.StorageClass) string {
	if class == nil {
		return "volume group"
	}
	name := class.Parameters[api.ParameterVolumeGroup]
	if tag, isTag := cutTag(name); isTag {
		return fmt.Sprintf("volume group with the LVM tag %q", tag)
	}
	return fmt.Sprintf("volume group %q", name)
}

func cutTag(name string) (string, bool) {
	if len(name) > 0 && name[0] == '@' {
		return name[1:], true
	}
	return name, false
}

func requestOf(claim corev1.PersistentVolumeClaim) lvm.Bytes {
	return BytesOf(claim.Spec.Resources.Requests.Storage())
}

// RegistrationProblem says what is missing of the registration of a node's driver; "": nothing. csi is nil if the CSINode does not
// exist.
func RegistrationProblem(node *corev1.Node, csi *storagev1.CSINode) string {
	var texts []string
	for _, o := range registrationObstacles(node, csi) {
		texts = append(texts, o.text)
	}
	return strings.Join(texts, ", and ")
}

func registrationObstacles(node *corev1.Node, csi *storagev1.CSINode) []obstacle {
	found := labelObstacles(node)
	registered := csi != nil && slices.ContainsFunc(csi.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == api.DriverName && d.NodeID == node.Name && slices.Contains(d.TopologyKeys, api.TopologyKey)
	})
	if !registered {
		found = append(found, obstacle{fmt.Sprintf("CSINode %s lacks the driver %s", node.Name, api.DriverName),
			"delete the driver's pod on " + node.Name + ": the kubelet registers the next one"})
	}
	return found
}

// labelObstacles say that the topology label of a node, which the affinity of PersistentVolumes and the published capacity name, is not
// the node's.
func labelObstacles(node *corev1.Node) []obstacle {
	fix := fmt.Sprintf("kubectl label node %s --overwrite %s=%s", node.Name, api.TopologyKey, node.Name)
	switch label, has := node.Labels[api.TopologyKey]; {
	case !has:
		return []obstacle{{fmt.Sprintf("node %s lacks the label %s", node.Name, api.TopologyKey), fix}}
	case label != node.Name:
		return []obstacle{{fmt.Sprintf("the label %s of node %s is %q", api.TopologyKey, node.Name, label), fix}}
	}
	return nil
}
