package main

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	moveRecord = "nodelvm.io/move-record"
	movingTo   = "nodelvm.io/moving-to"
	moveOffer  = "nodelvm.io/move-offer"
	moveAnswer = "nodelvm.io/move-answer"
	handedOver = "nodelvm.io/move-handed-over"
	moveStatus = "nodelvm.io/move-status"
	moveFinish = "nodelvm.io/move-finish"
	moveTo     = "nodelvm.io/move-to"

	ofDeleted  = `{"from":"node-1","to":"node-2","policy":"Delete"}`
	ofRetained = `{"from":"node-1","to":"node-2","policy":"Retain"}`
)

// withMoves are the values with moves between nodes.
var withMoves = map[string]any{"move": map[string]any{"enabled": true}}

// TestNodeRestrictionMoves: with move.enabled the policy admits the requests of a move and of a full copy, and everything else as without it.
func TestNodeRestrictionMoves(t *testing.T) {
	expectAnswers(t, policyIn(t, renderWith(t, withMoves), "nodelvm-node-restriction"),
		volumeRequests(), claimRequests(), snapshotRequests(), otherRequests(), moveRequests(), copyRequests())
	wanted := slices.DeleteFunc(append(moveRequests(), copyRequests()...), func(r request) bool { return r.refused != "" })
	for i := range wanted {
		wanted[i].refused = mayOnly
	}
	t.Run("off", func(t *testing.T) { expectAnswers(t, shippedPolicy(t, "nodelvm-node-restriction"), wanted) })
}

// TestVolumeClassMoves: a volume that moves is retained, and its record has the policy of the class, or Retain.
func TestVolumeClassMoves(t *testing.T) {
	class := classNamed("local", "nodelvm.io")
	const differs = "are those of its storage class local"
	expectAnswers(t, policyIn(t, renderWith(t, withMoves), "nodelvm-volume-class"), []request{
		{name: "of the class's policy", now: recorded(ofDeleted, retained("node-1")), params: class},
		{name: "of an admin's policy", now: recorded(ofRetained, retained("node-1")), params: class},
		{name: "without a record", now: retained("node-1"), params: class, refused: differs},
		{name: "of another policy", now: recorded(`{"policy":"Recycle"}`, retained("node-1")), params: class, refused: differs},
		{name: "with other mount options", now: recorded(ofDeleted, mounted("dev", retained("node-1"))), params: class, refused: differs},
	})
}

// moveRequests are those of a move from or to node-1.
func moveRequests() []request {
	const secret = "node-1 may create no volume that refers to a Secret"
	begun := func(node string) *core.PersistentVolume { return recorded(ofDeleted, retained(node)) }
	return []request{
		{name: "begin a move of its volume", before: held(volume("node-1")), now: held(begun("node-1"))},
		{name: "begin a move of its retained volume", before: retained("node-1"), now: recorded(ofRetained, retained("node-1"))},
		{name: "delete the object of its volume that moves", before: begun("node-1")},
		{name: "end the deletion of its volume that moves", before: dying(held(begun("node-1"))), now: unguarded(dying(begun("node-1")))},
		{name: "park its volume", now: parked(begun("node-1"))},
		{name: "park a volume with an attributes class", now: ofAttributes("gold", parked(begun("node-1")))},
		{name: "offer its parked volume", before: parked(begun("node-1")), now: saying(moveOffer, "{}", parked(begun("node-1")))},
		{name: "say that its volume is handed over", before: parked(begun("node-1")), now: saying(handedOver, "1", parked(begun("node-1")))},
		{name: "answer another node's offer", before: toNode("node-1", parked(begun("node-2"))), now: saying(moveAnswer, "{}", toNode("node-1", parked(begun("node-2"))))},
		{name: "create the volume that came", now: toNode("node-1", begun("node-1"))},
		{name: "end a move", before: saying(moveAnswer, "{}", begun("node-1")), now: volume("node-1")},
		{name: "end a move of a retained volume", before: recorded(ofRetained, retained("node-1")), now: retained("node-1")},
		{name: "show how far a move is", before: moving(bound("node-1")), now: annotated(moveStatus, "{}", moving(bound("node-1")))},
		{name: "hand a claim over", before: annotated(moveFinish, "node-1", moving(bound("node-1"))), now: annotated(moveStatus, "{}", annotated(selectedNode, "node-2", moving(bound("node-1"))))},
		{name: "give a claim its attributes class back", sub: "status", before: inClass("fast", annotated(moveStatus, "{}", bound("node-1"))), now: modified(inClass("fast", annotated(moveStatus, "{}", bound("node-1"))))},

		{name: "begin a move under another policy", before: volume("node-1"), now: recorded(ofRetained, retained("node-1")), refused: mayOnly},
		{name: "begin a move of another node's volume", before: volume("node-2"), now: begun("node-2"), refused: mayOnly},
		{name: "begin a move and enlarge", before: volume("node-1"), now: sized(begun("node-1")), refused: mayOnly},
		{name: "begin a move and label", before: volume("node-1"), now: labelled(begun("node-1")), refused: mayOnly},
		{name: "begin a move that is not retained", before: volume("node-1"), now: recorded(ofDeleted, volume("node-1")), refused: mayOnly},
		{name: "change the record of a move", before: begun("node-1"), now: recorded(ofRetained, retained("node-1")), refused: mayOnly},
		{name: "end a move under another policy", before: recorded(ofRetained, retained("node-1")), now: volume("node-1"), refused: mayOnly},
		{name: "retain its volume without a move", before: volume("node-1"), now: retained("node-1"), refused: mayOnly},
		{name: "stop retaining its volume", before: retained("node-1"), now: volume("node-1"), refused: mayOnly},
		{name: "delete the object of another node's volume that moves", before: begun("node-2"), refused: mayOnly},
		{name: "delete the object of a volume that moves to it", before: toNode("node-1", parked(begun("node-2"))), refused: mayOnly},
		{name: "delete the object of its volume that does not move", before: retained("node-1"), refused: mayOnly},
		{name: "let its volume that moves go before its deletion", before: begun("node-1"), now: unguarded(begun("node-1")), refused: mayOnly},
		{name: "answer an offer to another node", before: parked(begun("node-2")), now: saying(moveAnswer, "{}", parked(begun("node-2"))), refused: mayOnly},
		{name: "answer an offer, and more", before: toNode("node-1", parked(begun("node-2"))), now: saying(handedOver, "1", saying(moveAnswer, "{}", toNode("node-1", parked(begun("node-2"))))), refused: mayOnly},
		{name: "answer at length", before: toNode("node-1", parked(begun("node-2"))), now: saying(moveAnswer, strings.Repeat("a", 5000), toNode("node-1", parked(begun("node-2")))), refused: mayOnly},
		{name: "begin a move with a long record", before: volume("node-1"), now: recorded(long(ofDeleted), retained("node-1")), refused: mayOnly},
		{name: "park a volume with a long record", now: parked(recorded(long(ofDeleted), retained("node-1"))), refused: mayOnly},
		{name: "park a volume for a node with a long name", now: toNode(long("n"), parked(begun("node-1"))), refused: mayOnly},
		{name: "offer at length", before: parked(begun("node-1")), now: saying(moveOffer, strings.Repeat("a", 5000), parked(begun("node-1"))), refused: mayOnly},
		{name: "hand over at length", before: parked(begun("node-1")), now: saying(handedOver, strings.Repeat("a", 5000), parked(begun("node-1"))), refused: mayOnly},
		{name: "answer itself at length", before: parked(begun("node-1")), now: saying(moveAnswer, strings.Repeat("a", 5000), parked(begun("node-1"))), refused: mayOnly},
		{name: "say that another node's volume is handed over", before: toNode("node-1", parked(begun("node-2"))), now: saying(handedOver, "1", toNode("node-1", parked(begun("node-2")))), refused: mayOnly},
		{name: "offer another node's volume", before: toNode("node-1", parked(begun("node-2"))), now: saying(moveOffer, "{}", toNode("node-1", parked(begun("node-2")))), refused: mayOnly},
		{name: "redirect another node's move", before: parked(begun("node-2")), now: toNode("node-1", parked(begun("node-2"))), refused: mayOnly},
		{name: "create the volume for the other node", now: begun("node-2"), refused: mayOnly},
		{name: "park a volume without a record", now: parked(retained("node-1")), refused: mayOnly},
		{name: "park a volume that is deleted with its claim", now: parked(recorded(ofDeleted, volume("node-1"))), refused: mayOnly},
		{name: "park a volume with another rule", now: ruled("a", parked(begun("node-1"))), refused: mayOnly},
		{name: "create a volume that came, with a Secret", now: secretly(begun("node-1")), refused: secret},
		{name: "show how far a move of another node's claim is", before: moving(bound("node-2")), now: annotated(moveStatus, "{}", moving(bound("node-2"))), refused: mayOnly},
		{name: "show how far a move to it is", before: annotated(moveTo, "node-1", bound("node-2")), now: annotated(moveStatus, "{}", annotated(moveTo, "node-1", bound("node-2"))), refused: mayOnly},
		{name: "take a claim that moves to it", before: annotated(moveTo, "node-1", bound("node-2")), now: annotated(selectedNode, "node-1", annotated(moveTo, "node-1", bound("node-2"))), refused: mayOnly},
		{name: "ask for a move", before: bound("node-1"), now: moving(bound("node-1")), refused: mayOnly},
		{name: "finish for the user", before: bound("node-1"), now: annotated(moveFinish, "node-1", bound("node-1")), refused: mayOnly},
		{name: "show a move of an unbound claim", before: claim("node-1"), now: annotated(moveStatus, "{}", claim("node-1")), refused: mayOnly},
		{name: "change a claim's attributes class", sub: "status", before: modified(bound("node-1")), now: bound("node-1"), refused: mayOnly},
		{name: "give another node's claim an attributes class", sub: "status", before: inClass("fast", annotated(moveStatus, "{}", bound("node-2"))), now: modified(inClass("fast", annotated(moveStatus, "{}", bound("node-2")))), refused: mayOnly},
		{name: "give a claim another attributes class", sub: "status", before: inClass("slow", annotated(moveStatus, "{}", bound("node-1"))), now: modified(inClass("slow", annotated(moveStatus, "{}", bound("node-1")))), refused: mayOnly},
	}
}

// long is more than a field may have.
func long(text string) string { return text + strings.Repeat(" ", 2048) }

func saying(key, value string, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Annotations[key] = value
	return pv
}

// recorded has the record of a move to node-2.
func recorded(record string, pv *core.PersistentVolume) *core.PersistentVolume {
	return saying(movingTo, "node-2", saying(moveRecord, record, pv))
}

func toNode(node string, pv *core.PersistentVolume) *core.PersistentVolume {
	return saying(movingTo, node, pv)
}

// parked requires a label that no node has.
func parked(pv *core.PersistentVolume) *core.PersistentVolume {
	term := &pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0]
	term.MatchExpressions = append(term.MatchExpressions, core.NodeSelectorRequirement{Key: "nodelvm.io/moving", Operator: core.NodeSelectorOpIn, Values: []string{"true"}})
	return pv
}

func ruled(key string, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[1].Key = key
	return pv
}

func dying(pv *core.PersistentVolume) *core.PersistentVolume {
	now := meta.Now()
	pv.DeletionTimestamp = &now
	return pv
}

func ofAttributes(class string, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.VolumeAttributesClassName = &class
	return pv
}

func mounted(option string, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.MountOptions = []string{option}
	return pv
}

func secretly(pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.CSI.NodeStageSecretRef = &core.SecretReference{Namespace: "kube-system", Name: "root"}
	return pv
}

// inClass wants an attributes class.
func inClass(class string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Spec.VolumeAttributesClassName = &class
	return pvc
}

// moving is a claim whose user asks for node-2.
func moving(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	return annotated(moveTo, "node-2", pvc)
}
