package nodeloss

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodelvm/nodelvm/api"
)

// A volume that moves (kube/move) has its PersistentVolume on the source until the target creates its own. If the source is lost in between, its
// data may be on the target. Then nothing is released: a claim that is created again would be empty.

// copyOf is what the PersistentVolume of a volume says about a complete copy on another node.
type copyOf struct {
	node  string // "": there is none
	moved bool   // that node knows that the volume is its own
}

// copied reads it. The annotations are the two nodes': one of them can only hold the release of that volume back.
func (s observation) copied() copyOf {
	var answer struct {
		Received  string `json:"received"`
		Confirmed string `json:"confirmed"`
	}
	_ = json.Unmarshal([]byte(s.Pv.Annotations[api.AnnotationMoveAnswer]), &answer) // else there is none
	to := s.Pv.Annotations[api.AnnotationMovingTo]
	if len(validation.IsDNS1123Subdomain(to)) > 0 || to == s.Loss.node || answer.Received == "" && answer.Confirmed == "" && s.Pv.Annotations[api.AnnotationHandedOver] == "" {
		return copyOf{}
	}
	return copyOf{node: to, moved: answer.Confirmed != ""}
}

// remedyOfMove says what the owner of a claim can do whose volume has a complete copy on another node; "": it has none.
func (s observation) remedyOfMove() string {
	switch c := s.copied(); {
	case c.node == "":
		return ""
	case !c.moved:
		return fmt.Sprintf("Node %s has a complete copy, but does not know whether node %s has handed the volume over: the move goes on when %s is back. nodelvm deletes nothing.", c.node, s.Loss.node, s.Loss.subject())
	default:
		return fmt.Sprintf("Node %s has this volume's data since its move. To use it there without %s, an admin runs kubectl -n %s annotate pvc %s --overwrite %s=%s, then kubectl delete pv %s --wait=false, "+
			"and removes that object's finalizers: node %s creates it again. nodelvm deletes nothing.", c.node, s.Loss.subject(), s.Claim.Namespace, s.Claim.Name, api.AnnotationSelectedNode, c.node, s.Pv.Name, c.node)
	}
}
