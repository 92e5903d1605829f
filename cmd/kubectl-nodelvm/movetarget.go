package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// targets says which nodes can have volumes, beside those that are planned already.
type targets struct {
	*moveFacts
	planned map[string][]plannedSize // by node
	placed  map[*corev1.Pod]string   // nodes of the pods of planned groups

	// Lookups in the facts: a plan compares each group with each node, and a cluster has many of both.
	named    map[string]*corev1.Node
	on       map[string][]*corev1.Pod      // by the node where they are
	apart    map[*corev1.Pod][]*corev1.Pod // what selectedBy returned
	capacity map[[2]string]capacityThere   // what publishedAt returned, by class and node
}

type plannedSize struct {
	class string
	size  lvm.Bytes
}

type capacityThere struct{ largest, all *lvm.Bytes }

func newTargets(f *moveFacts) *targets {
	t := &targets{moveFacts: f, planned: map[string][]plannedSize{}, placed: map[*corev1.Pod]string{}, named: map[string]*corev1.Node{},
		on: map[string][]*corev1.Pod{}, apart: map[*corev1.Pod][]*corev1.Pod{}, capacity: map[[2]string]capacityThere{}}
	for i := range f.nodes {
		t.named[f.nodes[i].Name] = &f.nodes[i]
	}
	for i := range f.pods {
		t.on[f.pods[i].Spec.NodeName] = append(t.on[f.pods[i].Spec.NodeName], &f.pods[i])
	}
	return t
}

// place plans a group on its target.
func (t *targets) place(g *moveGroup) {
	for _, c := range g.Claims {
		if !c.Moving { // else its node has allocated it, or will soon
			t.planned[g.To] = append(t.planned[g.To], plannedSize{c.Class, c.Size})
		}
	}
	for _, pod := range g.pods {
		t.placed[pod] = g.To
	}
}

// choose returns the node with the most capacity of those without an obstacle, and the others, those without a driver last; "": none is.
func (t *targets) choose(g *moveGroup) (best string, passedOver []nodeObstacles) {
	var most lvm.Bytes
	for i := range t.nodes {
		node := &t.nodes[i]
		if node.Name == g.From {
			continue
		}
		if found := t.obstacles(g, node.Name); len(found) > 0 {
			passedOver = append(passedOver, nodeObstacles{Node: node.Name, Obstacles: found, noDriver: t.driverObstacle(node, node.Name) != ""})
			continue
		}
		if left := t.left(g, node); best == "" || left > most {
			best, most = node.Name, left
		}
	}
	slices.SortStableFunc(passedOver, func(a, b nodeObstacles) int {
		return cmp.Or(a.rank()-b.rank(), cmp.Compare(len(a.Obstacles), len(b.Obstacles)), strings.Compare(a.Node, b.Node))
	})
	return best, passedOver
}

// obstacles lists what keeps a group from a node, as far as the objects of the cluster show.
func (t *targets) obstacles(g *moveGroup, name string) (found []string) {
	add := func(texts ...string) {
		for _, text := range texts {
			if text != "" && !slices.Contains(found, text) {
				found = append(found, text)
			}
		}
	}
	node := t.node(name)
	if t.nodes != nil && node == nil {
		return []string{"the cluster has no such node" + suffix("; the driver runs on ", nodeWords(t.driverNodes()))}
	}
	if add(t.driverObstacle(node, name)); len(found) > 0 || node == nil {
		return found
	}
	for i := range t.answers {
		for _, c := range g.Claims {
			if t.answers[i].node == name && t.answers[i].formerCopy(c.Volume) {
				add(fmt.Sprintf("it still has the former copy of claim %s, which moved away from there: kubectl nodelvm move -n %s %s --finish", c.Name, g.Namespace, c.Name))
			}
		}
	}
	add(t.rules(g, node)...)
	add(t.capacityObstacles(g, node)...)
	return found
}

// driverObstacle says why the driver of a node cannot receive volumes; "": it can, or that is unknown. node is nil if nodes cannot be read.
func (f *moveFacts) driverObstacle(node *corev1.Node, name string) string {
	if f.csiNodes != nil {
		csi := find(f.csiNodes, func(n *storagev1.CSINode) bool { return n.Name == name })
		switch {
		case node != nil && pending.RegistrationProblem(node, csi) != "":
			return "nodelvm is not registered there: " + pending.RegistrationProblem(node, csi)
		case csi == nil:
			return "no CSINode has its name, so nodelvm is not registered there"
		}
	}
	return f.cannotMove(name)
}

// cannotMove says why the driver on a node moves no volumes; "": it does, or that is unknown.
func (f *moveFacts) cannotMove(node string) string {
	if f.drivers == nil {
		return ""
	}
	pod := f.driverOn(node)
	if pod == nil {
		return "no driver pod runs there"
	}
	if moves, _ := movesVolumes(pod); !moves {
		return "its driver does not move volumes: set move.enabled to true in the chart's values"
	}
	return ""
}

// driverNodes returns the nodes whose driver moves volumes, if the user may know them.
func (f *moveFacts) driverNodes() (names []string) {
	for i := range f.drivers {
		if moves, _ := movesVolumes(&f.drivers[i]); moves {
			names = append(names, f.drivers[i].Spec.NodeName)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// capacityAt returns the largest volume of a class that a node publishes, and all of them together; nil: it publishes nothing.
func (t *targets) capacityAt(class string, node *corev1.Node) (largest, all *lvm.Bytes) {
	of := [2]string{class, node.Name}
	p, known := t.capacity[of]
	if !known {
		p.largest, p.all = t.publishedAt(class, node)
		t.capacity[of] = p
	}
	return p.largest, p.all
}

func (f *moveFacts) publishedAt(class string, node *corev1.Node) (largest, all *lvm.Bytes) {
	for i := range f.published {
		p := &f.published[i]
		if p.StorageClassName != class {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(p.NodeTopology)
		if err != nil || !selector.Matches(labels.Set(node.Labels)) {
			continue
		}
		one, sum := cmp.Or(p.MaximumVolumeSize, p.Capacity), cmp.Or(p.Capacity, p.MaximumVolumeSize)
		if one == nil {
			continue
		}
		a, b := lvm.Bytes(one.Value()), lvm.Bytes(sum.Value())
		return &a, &b
	}
	return nil, nil
}

// capacityObstacles compares the group's sizes with the published capacity, without what is planned on the same volume groups.
func (t *targets) capacityObstacles(g *moveGroup, node *corev1.Node) (found []string) {
	if t.published == nil {
		return nil
	}
	beside := slices.Clone(t.planned[node.Name])
	for _, c := range g.Claims {
		if c.Moving {
			continue
		}
		largest, all := t.capacityAt(c.Class, node)
		if largest == nil {
			found = append(found, fmt.Sprintf("it publishes no capacity for StorageClass %s", c.Class))
			continue
		}
		switch planned := t.sharing(node.Name, c.Class, beside); {
		case c.Size > *largest:
			found = append(found, fmt.Sprintf("it has capacity for a volume of at most %s of StorageClass %s, and that of claim %s has %s", *largest, c.Class, c.Name, c.Size))
		case c.Size > *all-planned:
			found = append(found, fmt.Sprintf("it has %s for StorageClass %s, of which other volumes of this plan take %s, and that of claim %s has %s", *all, c.Class, planned, c.Name, c.Size))
		default:
			beside = append(beside, plannedSize{c.Class, c.Size})
		}
	}
	return found
}

// left returns the capacity that a node has beside a group, for the class that then has the least.
func (t *targets) left(g *moveGroup, node *corev1.Node) (least lvm.Bytes) {
	beside := slices.Clone(t.planned[node.Name])
	for _, c := range g.Claims {
		beside = append(beside, plannedSize{c.Class, c.Size})
	}
	for i, c := range g.Claims {
		if _, all := t.capacityAt(c.Class, node); all != nil {
			if left := *all - t.sharing(node.Name, c.Class, beside); i == 0 || left < least {
				least = left
			}
		}
	}
	return least
}

// sharing sums the planned sizes on the volume groups of a class. Two classes share one unless the node reports that they do not.
func (f *moveFacts) sharing(node, class string, planned []plannedSize) (sum lvm.Bytes) {
	for _, p := range planned {
		if p.class == class || f.shareGroup(node, p.class, class) {
			sum += p.size
		}
	}
	return sum
}

func (f *moveFacts) shareGroup(node, one, other string) bool {
	a := answerOf(f.answers, node)
	if a == nil || a.incomplete() != "" {
		return true
	}
	x, y := classOf(a.page, one), classOf(a.page, other)
	if x == nil || y == nil {
		return true
	}
	for _, offer := range x.Offers {
		for _, also := range y.Offers {
			if offer.Group == also.Group {
				return true
			}
		}
	}
	return false
}

// rules are those of the scheduler, and of the storage classes.
func (t *targets) rules(g *moveGroup, node *corev1.Node) (found []string) {
	facts := pending.Facts{OtherVolumes: g.others}
	for _, pod := range g.pods {
		facts.Pods = append(facts.Pods, *pod)
	}
	for _, c := range g.Claims {
		facts.Class = t.class(c.Class)
		found = append(found, pending.NodeObstacles(facts, node)...)
	}
	if len(g.pods) == 0 {
		for _, text := range pending.RulesAgainst(&corev1.Pod{}, node) {
			found = append(found, strings.Replace(text, "pod  does not tolerate its taint", "no pod uses the claims now, and one without tolerations does not tolerate its taint", 1))
		}
	}
	for _, pod := range g.pods {
		found = append(found, t.mayNotRunWith(pod, node, g.pods), t.room(pod, node, g.pods))
	}
	return found
}
