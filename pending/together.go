package pending

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// All volumes of a pod are on one node, so its waiting claims must fit there together. Whether they do depends on the extents that
// each gets; these are upper bounds, so that what they refuse is certainly refused.

// togetherObstacle says why the waiting claims of the pods do not fit on the node together; "": nothing proves that.
func togetherObstacle(f Facts, n Node) string {
	if len(f.Waiting) == 0 || f.Claim.Annotations[api.AnnotationSelectedNode] == n.Node.Name { // that node may have reserved capacity for them
		return ""
	}
	class := classOf(f.Claim)
	same := append(ofClass(f.Waiting, class), Waiting{f.Claim.Name, class, requestOf(f.Claim)})
	if available := availableOf(n.Offers); sum(same) > available {
		return fmt.Sprintf("%s, and it has capacity for %s of StorageClass %s", needOf(same), available, class)
	}
	group := onlyGroup(n.Offers)
	free, known := n.Free[group]
	if group == "" || !known || isThin(f) {
		return ""
	}
	for _, w := range f.Waiting {
		if w.Class != class && n.OnlyGroup[w.Class] == group {
			same = append(same, w)
		}
	}
	if len(same) > 1 && sum(same) > free {
		return fmt.Sprintf("%s, and volume group %s has %s free", needOf(same), group, free)
	}
	return ""
}

// room returns the largest volume that the claim can get on the node beside those of the pods' other waiting claims, at most.
func room(f Facts, n Node) lvm.Bytes {
	others := sum(ofClass(f.Waiting, classOf(f.Claim)))
	return max(0, min(largestOf(n.Offers), availableOf(n.Offers)-others))
}

func ofClass(waiting []Waiting, class string) (list []Waiting) {
	for _, w := range waiting {
		if w.Class == class {
			list = append(list, w)
		}
	}
	return list
}

func sum(claims []Waiting) (total lvm.Bytes) {
	for _, w := range claims {
		total += w.Size
	}
	return total
}

// needOf returns "the pod's claims a and b request 3 GiB together".
func needOf(claims []Waiting) string {
	var names []string
	for _, w := range claims {
		names = append(names, w.Name)
	}
	slices.Sort(names)
	return fmt.Sprintf("the pod's claims %s request %s together", strings.Join(names, ", "), sum(claims))
}

func availableOf(offers []report.Offer) (total lvm.Bytes) {
	for _, offer := range offers {
		total += offer.Available
	}
	return total
}

// onlyGroup returns the volume group of the offers; "": there is none, or more than one.
func onlyGroup(offers []report.Offer) lvm.VGName {
	if len(offers) != 1 {
		return ""
	}
	return offers[0].Group
}

func isThin(f Facts) bool {
	return f.Class != nil && f.Class.Parameters[api.ParameterLayout] == string(lvm.LayoutThin)
}
