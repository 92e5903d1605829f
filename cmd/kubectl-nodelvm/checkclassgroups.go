package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// obstacle is why a group of a node cannot serve classes.
type obstacle struct{ node, text string }

func (o obstacle) compare(p obstacle) int {
	return cmp.Or(cmp.Compare(o.node, p.node), cmp.Compare(o.text, p.text))
}

// checkClassGroups checks whether each class has a volume group that can serve it. Classes with the same cause share a finding.
func checkClassGroups(f *facts, found func(where, what, fix string)) {
	obstacles, missing := map[obstacle][]string{}, map[string][]string{}
	asked := 0
	for _, class := range f.classes {
		if nodes := f.addObstacles(class, obstacles); nodes > 0 {
			asked = nodes
			group := class.Parameters[api.ParameterVolumeGroup]
			missing[group] = append(missing[group], class.Name)
		}
	}
	for _, o := range slices.SortedFunc(maps.Keys(obstacles), obstacle.compare) {
		found(o.node, fmt.Sprintf("no capacity for %s: %s", classWords(obstacles[o]), o.text), "resolve that, or ignore it if other nodes serve these claims")
	}
	unread := f.incompleteNodes()
	for _, group := range slices.Sorted(maps.Keys(missing)) {
		what, fix := fmt.Sprintf("the volume group %q", group),
			"create a volume group of that name on a node (vgcreate --metadatasize 64m --setautoactivation n "+printable.ShellWord(group)+" DISK...), or set another one in the class"
		if tag, isTag := strings.CutPrefix(group, "@"); isTag {
			what, fix = fmt.Sprintf("a volume group with the LVM tag %q", tag), "add the tag to a volume group (vgchange --addtag "+printable.ShellWord(tag)+" GROUP), or set another one in the class"
		}
		none, effect := fmt.Sprintf("none of the %d nodes that report their groups has ", asked), ": claims stay Pending"
		if asked == 1 {
			none = "the only node that reports its groups does not have "
		}
		if len(unread) > 0 {
			effect = "; whether " + nodeWords(unread) + " has it is unknown"
			fix = "first find out why " + nodeWords(unread) + " reports nothing; if no node has it: " + fix
		}
		found(classWords(missing[group]), none+what+effect, fix)
	}
}

// incompleteNodes returns the nodes whose driver does not report all that is on their disks.
func (f *facts) incompleteNodes() (names []string) {
	for _, a := range f.answers {
		if a.incomplete() != "" && !slices.Contains(names, a.node) {
			names = append(names, a.node)
		}
	}
	return names
}

// nodeWords lists nodes, at most nodesReported by name.
func nodeWords(nodes []string) string {
	if more := len(nodes) - nodesReported; more > 0 {
		return strings.Join(nodes[:nodesReported], ", ") + fmt.Sprintf(" and %d more nodes", more)
	}
	return strings.Join(nodes, ", ")
}

func classWords(classes []string) string {
	if len(classes) == 1 {
		return "StorageClass " + classes[0]
	}
	return "StorageClasses " + strings.Join(classes, ", ")
}

// addObstacles adds the obstacles of one class. If no node has the class' group and no other check reports why, it returns the
// number of nodes that answered, else 0.
func (f *facts) addObstacles(class storagev1.StorageClass, obstacles map[obstacle][]string) (nodes int) {
	offers, explained := 0, false
	for _, a := range f.answering() {
		c := classOf(a.page, class.Name)
		if c == nil || len(c.Offers) == 0 && c.Error == "" && a.incomplete() != "" {
			continue
		}
		nodes++
		offers += len(c.Offers)
		explained = explained || c.Error != "" ||
			hasCondition(a.page, lvm.ConditionVolumeGroupSetupFailed, lvm.VGName(class.Parameters[api.ParameterVolumeGroup]))
		for _, offer := range c.Offers {
			if offer.Obstacle != "" && !reportedElsewhere(a.page, offer, class.Parameters) {
				key := obstacle{a.node, offer.Obstacle}
				obstacles[key] = append(obstacles[key], class.Name)
			}
		}
	}
	if offers > 0 || explained {
		return 0
	}
	return nodes
}

// reportedElsewhere reports whether checkGroups, checkPools or checkConditions reports an obstacle.
func reportedElsewhere(page report.Node, offer report.Offer, parameters map[string]string) bool {
	pool := poolOf(parameters)
	for _, g := range page.Groups {
		if g.Name != offer.Group {
			continue
		}
		if g.Problem != "" {
			return true
		}
		if slices.ContainsFunc(g.Pools, func(p report.Pool) bool { return !p.Zero && p.Name == pool }) {
			return true
		}
	}
	return pool != "" && slices.ContainsFunc(page.Conditions, func(x report.Condition) bool { return x.Group == offer.Group && x.Pool == pool })
}
