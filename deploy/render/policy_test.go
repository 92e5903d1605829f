package main

import (
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	account      = "system:serviceaccount:nodelvm-system:nodelvm"
	topologyKey  = "topology.nodelvm.io/node"
	selectedNode = "volume.kubernetes.io/selected-node"
)

// request is one write as the admission chain sees it.
type request struct {
	name        string
	node        string // of the token; "-" is a token without a node
	user        string // "" is the driver's account
	before, now runtime.Object
	refused     string // "" is admitted, else a part of the message
}

// TestNodeRestriction runs the shipped policy in the API server's own engine over
// what csi-provisioner writes, and over what a stolen token would try.
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
func volume(nodes ...string) *core.PersistentVolume {
	pv := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: "pvc-1"}}
	pv.Spec.PersistentVolumeReclaimPolicy = core.PersistentVolumeReclaimDelete
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "nodelvm.io", VolumeHandle: "a/b"}
	if len(nodes) > 0 {
		term := core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{
			{Key: topologyKey, Operator: core.NodeSelectorOpIn, Values: nodes},
		}}
		pv.Spec.NodeAffinity = &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{term}}}
	}
	return pv
}

func retained(node string) *core.PersistentVolume {
	pv := volume(node)
	pv.Spec.PersistentVolumeReclaimPolicy = core.PersistentVolumeReclaimRetain
	return pv
}

// held adds csi-provisioner's finalizer.
func held(pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Finalizers = append(pv.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer")
	return pv
}

// guarded adds Kubernetes' own finalizer.
func guarded(pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Finalizers = append(pv.Finalizers, "kubernetes.io/pv-protection")
	return pv
}

func labelled(pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Labels = map[string]string{"a": "b"}
	return pv
}

func of(driver string, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.CSI.Driver = driver
	if driver == "" {
		pv.Spec.CSI = nil
	}
	return pv
}

func either(a, b *core.PersistentVolume) *core.PersistentVolume {
	terms := &a.Spec.NodeAffinity.Required.NodeSelectorTerms
	*terms = append(*terms, b.Spec.NodeAffinity.Required.NodeSelectorTerms...)
	return a
}

func operator(op core.NodeSelectorOperator, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Operator = op
	return pv
}

func claim(node string) *core.PersistentVolumeClaim {
	pvc := &core.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Name: "data", Namespace: "demo"}}
	if node != "" {
		pvc.Annotations = map[string]string{selectedNode: node}
	}
	return pvc
}

func capacity(node string) *storage.CSIStorageCapacity {
	return &storage.CSIStorageCapacity{
		ObjectMeta:       meta.ObjectMeta{GenerateName: "csisc-", Namespace: namespace},
		StorageClassName: "local",
		NodeTopology:     &meta.LabelSelector{MatchLabels: map[string]string{topologyKey: node}},
	}
}

func everywhere() *storage.CSIStorageCapacity {
	c := capacity("node-1")
	c.NodeTopology = &meta.LabelSelector{}
	return c
}
