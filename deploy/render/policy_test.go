package main

import (
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	account      = "system:serviceaccount:nodelvm-system:nodelvm"
	topologyKey  = "topology.nodelvm.io/node"
	selectedNode = "volume.kubernetes.io/selected-node"
	noExpansion  = "volume.kubernetes.io/node-expansion-not-required"
	cloning      = "provisioner.storage.kubernetes.io/cloning-protection"
	managedBy    = "snapshot.storage.kubernetes.io/managed-by"
	restoring    = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
)

// request is one write as the admission chain sees it.
type request struct {
	name        string
	node        string // of the token; "-" is a token without a node
	user        string // "" is the driver's account
	sub         string // subresource
	before, now runtime.Object
	refused     string // "" is admitted, else a part of the message
}

// TestNodeRestriction runs the shipped policy in the API server's own engine over
// what the driver and its sidecars write, and over what a stolen token would try.
func TestNodeRestriction(t *testing.T) {
	policy := shippedPolicy(t)
	validator := compile(t, policy)
	const only = "node-1 may "
	for _, r := range []request{
		// What the pod of node-1 does all day.
		{name: "make its volume", now: volume("node-1")},
		{name: "patch its volume's finalizer", before: volume("node-1"), now: volume("node-1")},
		{name: "remove its volume", before: volume("node-1")},
		{name: "give its claim back", before: claim("node-1"), now: claim("")},
		{name: "set a finalizer on its claim", before: claim("node-1"), now: claim("node-1")},
		{name: "publish its capacity", now: capacity("node-1")},
		{name: "update its capacity", before: capacity("node-1"), now: capacity("node-1")},
		{name: "withdraw its capacity", before: capacity("node-1")},
		{name: "free a retained volume", before: held(retained("node-2")), now: retained("node-2")},
		{name: "hold a volume that shall be deleted", before: volume("node-2"), now: held(volume("node-2"))},
		{name: "give its volume its new size", before: volume("node-1"), now: sized(volume("node-1"))},
		{name: "note an expansion", sub: "status", before: bound("node-1"), now: growing(bound("node-1"))},
		{name: "note an expansion of a block volume", sub: "status", before: growing(bound("node-1")), now: annotated(noExpansion, "true", bound("node-1"))},
		{name: "note an expansion of a claim that was bound by hand", sub: "status", before: bound(""), now: growing(bound(""))},
		{name: "take a claim whose source it has", before: copying("VolumeSnapshot", claim("")), now: copying("VolumeSnapshot", claim("node-1"))},
		{name: "take such a claim over", before: copying("PersistentVolumeClaim", claim("node-2")), now: copying("PersistentVolumeClaim", claim("node-1"))},
		{name: "protect the source of a copy", before: claim("node-2"), now: finalized(cloning, claim("node-2"))},
		{name: "give the source of a copy free", before: finalized(cloning, claim("")), now: claim("")},
		{name: "protect a snapshot while it is restored", before: snapshot(), now: protected(snapshot())},
		{name: "give that free", before: protected(snapshot()), now: snapshot()},
		{name: "set a finalizer on its content", before: content("node-1"), now: marked(content("node-1"))},
		{name: "label a content that was made by hand", before: byHand(""), now: byHand("node-1")},
		{name: "label one with labels", before: tagged("a", "b", byHand("")), now: tagged("a", "b", byHand("node-1"))},
		{name: "note that its snapshot is ready", sub: "status", before: content("node-1"), now: ready(content("node-1"))},

		// Volumes.
		{name: "free another node's volume", before: held(volume("node-2")), now: volume("node-2"), refused: only},
		{name: "hold a retained volume", before: retained("node-2"), now: held(retained("node-2")), refused: only},
		{name: "free another driver's volume", before: of("other.io", held(retained("node-2"))), now: of("other.io", retained("node-2")), refused: only},
		{name: "retain another node's volume", before: held(volume("node-2")), now: retained("node-2"), refused: only},
		{name: "take away other finalizers", before: held(guarded(retained("node-2"))), now: retained("node-2"), refused: only},
		{name: "label while freeing", before: held(retained("node-2")), now: labelled(retained("node-2")), refused: only},
		{name: "make another node's volume", now: volume("node-2"), refused: only},
		{name: "remove another node's volume", before: volume("node-2"), refused: only},
		{name: "patch another node's volume", before: volume("node-2"), now: labelled(volume("node-2")), refused: only},
		{name: "move its volume away", before: volume("node-1"), now: volume("node-2"), refused: only},
		{name: "take another node's volume over", before: volume("node-2"), now: volume("node-1"), refused: only},
		{name: "make another driver's volume", now: of("other.io", volume("node-1")), refused: only},
		{name: "remove another driver's volume", before: of("other.io", volume("node-1")), refused: only},
		{name: "remove a volume that is no CSI volume", before: of("", volume("node-1")), refused: only},
		{name: "remove a volume of no node", before: volume(), refused: only},
		{name: "remove a volume of two nodes", before: volume("node-1", "node-2"), refused: only},
		{name: "make a volume for either of two nodes", now: either(volume("node-1"), volume("node-2")), refused: only},
		{name: "make a volume for all but a node", now: operator(core.NodeSelectorOpNotIn, volume("node-1")), refused: only},

		// Claims.
		{name: "update another node's claim", before: claim("node-2"), now: claim(""), refused: only},
		{name: "take a claim that nobody has", before: claim(""), now: claim("node-1"), refused: only},
		{name: "take another node's claim", before: claim("node-2"), now: claim("node-1"), refused: only},
		{name: "take a claim that another populates", before: copying("Recipe", claim("")), now: copying("Recipe", claim("node-1")), refused: only},
		{name: "give a copy to another node", before: copying("VolumeSnapshot", claim("")), now: copying("VolumeSnapshot", claim("node-2")), refused: only},
		{name: "take a copy that is bound", before: copying("VolumeSnapshot", bound("node-2")), now: copying("VolumeSnapshot", bound("node-1")), refused: only},
		{name: "take a copy and a note with it", before: copying("VolumeSnapshot", claim("")), now: annotated("a", "b", copying("VolumeSnapshot", claim("node-1"))), refused: only},
		{name: "take a copy and its protection away", before: finalized("kubernetes.io/pvc-protection", copying("VolumeSnapshot", claim(""))), now: copying("VolumeSnapshot", claim("node-1")), refused: only},
		{name: "take a copy and another source", before: copying("VolumeSnapshot", claim("")), now: copying("PersistentVolumeClaim", claim("node-1")), refused: only},
		{name: "note an expansion of another node's claim", sub: "status", before: bound("node-2"), now: growing(bound("node-2")), refused: only},
		{name: "note an expansion of a claim without a volume", sub: "status", before: claim("node-1"), now: growing(claim("node-1")), refused: only},
		{name: "call a claim lost", sub: "status", before: bound("node-1"), now: lost(bound("node-1")), refused: only},
		{name: "annotate by way of the status", sub: "status", before: bound("node-1"), now: annotated("a", "b", bound("node-1")), refused: only},
		{name: "move a claim by way of the status", sub: "status", before: bound("node-1"), now: bound("node-2"), refused: only},
		{name: "finalize by way of the status", sub: "status", before: bound("node-1"), now: finalized("a/b", bound("node-1")), refused: only},
		{name: "take away other finalizers of a claim", before: finalized("kubernetes.io/pvc-protection", claim("node-2")), now: claim("node-2"), refused: only},
		{name: "give another node's volume another size", before: volume("node-2"), now: sized(volume("node-2")), refused: only},

		// Snapshots.
		{name: "take a snapshot's other finalizers away", before: guardedSnapshot(), now: snapshot(), refused: only},
		{name: "change a snapshot", before: snapshot(), now: elsewhere(snapshot()), refused: only},
		{name: "make a snapshot", now: snapshot(), refused: only},
		{name: "remove a snapshot", before: snapshot(), refused: only},
		{name: "call a snapshot ready", sub: "status", before: snapshot(), now: snapshot(), refused: only},
		{name: "write another node's content", before: content("node-2"), now: marked(content("node-2")), refused: only},
		{name: "call another node's content ready", sub: "status", before: content("node-2"), now: ready(content("node-2")), refused: only},
		{name: "take another node's content over", before: content("node-2"), now: content("node-1"), refused: only},
		{name: "give its content away", before: content("node-1"), now: content("node-2"), refused: only},
		{name: "write a content of no node", before: content(""), now: marked(content("")), refused: only},
		{name: "write another driver's content", before: foreign(content("node-1")), now: foreign(marked(content("node-1"))), refused: only},
		{name: "make a content", now: content("node-1"), refused: only},
		{name: "label a content for another node", before: byHand(""), now: byHand("node-2"), refused: only},
		{name: "take another node's, made by hand, over", before: byHand("node-2"), now: byHand("node-1"), refused: only},
		{name: "take one over whose label is empty", before: tagged(managedBy, "", byHand("")), now: byHand("node-1"), refused: only},
		{name: "label a content that the controller made", before: content(""), now: content("node-1"), refused: only},
		{name: "label another driver's content", before: foreign(byHand("")), now: foreign(byHand("node-1")), refused: only},
		{name: "label by way of the status", sub: "status", before: byHand(""), now: byHand("node-1"), refused: only},
		{name: "label, and finalize", before: byHand(""), now: marked(byHand("node-1")), refused: only},
		{name: "label, and take finalizers away", before: marked(byHand("")), now: byHand("node-1"), refused: only},
		{name: "label, and annotate", before: byHand(""), now: noted(byHand("node-1")), refused: only},
		{name: "label, and set another label", before: byHand(""), now: tagged("a", "b", byHand("node-1")), refused: only},
		{name: "label, and change another label", before: tagged("a", "b", byHand("")), now: tagged("a", "c", byHand("node-1")), refused: only},
		{name: "label, and take another label away", before: tagged("a", "b", byHand("")), now: byHand("node-1"), refused: only},
		{name: "label, and put another label in one's place", before: tagged("a", "", byHand("")), now: tagged("b", "", byHand("node-1")), refused: only},
		{name: "label, and change what is done in the end", before: byHand(""), now: deleting(byHand("node-1")), refused: only},
		{name: "make a content by hand", now: byHand("node-1"), refused: only},
		{name: "remove a content that was made by hand", before: byHand(""), refused: only},
		{name: "remove its content", before: content("node-1"), refused: only},

		{name: "make a claim", now: claim("node-1"), refused: only},
		{name: "remove its claim", before: claim("node-1"), refused: only},

		// Capacity.
		{name: "publish another node's capacity", now: capacity("node-2"), refused: only},
		{name: "withdraw another node's capacity", before: capacity("node-2"), refused: only},
		{name: "turn its capacity into another's", before: capacity("node-1"), now: capacity("node-2"), refused: only},
		{name: "publish capacity everywhere", now: everywhere(), refused: only},

		// Tokens.
		{name: "use a token of no node", node: "-", now: volume("node-1"), refused: "bound to no node"},
		{name: "use a token of no node for a claim of none", node: "-", before: claim(""), now: claim(""), refused: "bound to no node"},
		{name: "somebody else", user: "system:admin", node: "-", before: volume("node-2")},
		{name: "a like-named account", user: account + "2", node: "-", before: volume("node-2")},
	} {
		t.Run(r.name, func(t *testing.T) {
			attributes := attributesOf(t, r)
			if !ruleMatches(policy, attributes) {
				t.Fatalf("no rule of the policy matches %s of %s", attributes.GetOperation(), attributes.GetResource())
			}
			denied := denials(t, validator, attributes)
			switch {
			case r.refused == "" && denied != "":
				t.Errorf("refused: %s", denied)
			case r.refused != "" && !strings.Contains(denied, r.refused):
				t.Errorf("answer %q, want a refusal that says %q", denied, r.refused)
			}
		})
	}
}

// shippedPolicy reads the policy from the plain manifest and checks what the validator does not see.
func shippedPolicy(t *testing.T) *admissionregistration.ValidatingAdmissionPolicy {
	t.Helper()
	var policy admissionregistration.ValidatingAdmissionPolicy
	only(t, shipped(t), "ValidatingAdmissionPolicy", &policy)
	var binding admissionregistration.ValidatingAdmissionPolicyBinding
	only(t, shipped(t), "ValidatingAdmissionPolicyBinding", &binding)
	if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != admissionregistration.Fail {
		t.Errorf("failure policy %v, want Fail", policy.Spec.FailurePolicy)
	}
	if binding.Spec.PolicyName != policy.Name || len(binding.Spec.ValidationActions) != 1 ||
		binding.Spec.ValidationActions[0] != admissionregistration.Deny || binding.Spec.MatchResources != nil {
		t.Errorf("binding %+v does not enforce policy %s everywhere", binding.Spec, policy.Name)
	}
	return &policy
}

// volume is a PV as csi-provisioner writes it, that may be used where all nodes are.
