package pending

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm/inventory"
)

// explainNode lists what keeps the claim's volume from a node. refused: every node refuses the class' parameters, which is a cause of the
// claim and no obstacle of one node.
func explainNode(f Facts, n Node, refused bool) NodeAnswer {
	a := NodeAnswer{Node: n.Node.Name, Obstacles: schedulingObstacles(f, &n.Node)}
	switch {
	case n.Silent != "":
		a.Obstacles = append(a.Obstacles, n.Silent)
	case n.Refused != "" && !refused:
		a.Obstacles = append(a.Obstacles, "its driver refuses the class: "+n.Refused)
	case n.Refused == "":
		largest := largestOf(n.Offers)
		a.Largest = &largest
		a.Obstacles = append(a.Obstacles, capacityObstacles(f, n, largest)...)
	}
	return a
}

// schedulingObstacles are those that do not depend on the node's disks.
func schedulingObstacles(f Facts, node *corev1.Node) []string {
	var found []string
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			found = append(found, "the node is not Ready: "+c.Message)
		}
	}
	if f.Class != nil && !isAllowed(f.Class.AllowedTopologies, node.Labels) {
		found = append(found, "allowedTopologies of the StorageClass excludes it")
	}
	for i := range f.Pods {
		found = append(found, podObstacles(&f.Pods[i], node)...)
	}
	for _, claim := range slices.Sorted(maps.Keys(f.OtherVolumes)) {
		if on := f.OtherVolumes[claim]; on != node.Name {
			found = append(found, fmt.Sprintf("the pod also uses claim %s, whose volume is on %s", claim, on))
		}
	}
	if f.Source != nil && f.Source.Node != "" && f.Source.Node != node.Name {
		found = append(found, fmt.Sprintf("a copy is on the disks of its source, and %s %s is on %s", f.Source.Kind, f.Source.Name, f.Source.Node))
	}
	return found
}

// podObstacles are what the scheduler would say of the pod on the node.
func podObstacles(pod *corev1.Pod, node *corev1.Node) []string {
	var found []string
	taint, there := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, isHard, true)
	switch {
	case node.Spec.Unschedulable && (!there || taint.Key == corev1.TaintNodeUnschedulable):
		found = append(found, "the node is cordoned: kubectl uncordon "+node.Name)
	case there:
		found = append(found, fmt.Sprintf("pod %s does not tolerate its taint %s", pod.Name, taint.ToString()))
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	switch {
	case err != nil:
		found = append(found, fmt.Sprintf("the node affinity of pod %s is invalid: %s", pod.Name, err))
	case !match:
		found = append(found, fmt.Sprintf("the nodeSelector or node affinity of pod %s excludes it", pod.Name))
	}
	return found
}

func isHard(taint *corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
}

// isAllowed reports whether a class' allowedTopologies select the labels of a node.
func isAllowed(terms []corev1.TopologySelectorTerm, of labels.Set) bool {
	if len(terms) == 0 {
		return true
	}
	return slices.ContainsFunc(terms, func(term corev1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			return !slices.Contains(e.Values, of[e.Key])
		})
	})
}

func largestOf(offers []inventory.Offer) (largest inventory.Bytes) {
	for _, offer := range offers {
		largest = max(largest, offer.Largest)
	}
	return largest
}

// capacityObstacles say why no volume group of the node has capacity for the claim.
func capacityObstacles(f Facts, n Node, largest inventory.Bytes) []string {
	size := requestOf(f.Claim)
	if largest >= size && len(n.Offers) > 0 {
		return nil
	}
	if len(n.Offers) == 0 {
		return []string{"it has no " + groupOf(f.Class)}
	}
	var found []string
	for _, offer := range n.Offers {
		switch {
		case offer.Group == "":
			found = append(found, fmt.Sprintf("it has capacity for a volume of at most %s with this class, and the claim requests %s", offer.Largest, size))
		case offer.Obstacle != "":
			found = append(found, fmt.Sprintf("volume group %s: %s", offer.Group, offer.Obstacle))
		case offer.Available >= size:
			found = append(found, fmt.Sprintf("volume group %s has %s free, but capacity for a volume of at most %s with this class, and the claim requests %s", offer.Group, offer.Available, offer.Largest, size))
		default:
			found = append(found, fmt.Sprintf("volume group %s has capacity for a volume of at most %s, and the claim requests %s", offer.Group, offer.Largest, size))
		}
	}
	if n.Wiping > 0 {
		found = append(found, fmt.Sprintf("%s of deleted volumes become free when the driver has zeroed them", n.Wiping))
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

func requestOf(claim corev1.PersistentVolumeClaim) inventory.Bytes {
	return inventory.Bytes(claim.Spec.Resources.Requests.Storage().Value())
}
