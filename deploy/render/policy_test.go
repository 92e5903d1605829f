package main

import (
	"slices"
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	account       = "system:serviceaccount:nodelvm-system:nodelvm"
	topologyKey   = "topology.nodelvm.io/node"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	selectedNode  = "volume.kubernetes.io/selected-node"
	noExpansion   = "volume.kubernetes.io/node-expansion-not-required"
	cloning       = "provisioner.storage.kubernetes.io/cloning-protection"
	managedBy     = "snapshot.storage.kubernetes.io/managed-by"
	restoring     = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
)

// request is one write as the admission chain sees it.
type request struct {
	name        string
	node        string // of the token; "-" is a token without a node
	user        string // "" is the driver's account
	sub         string // subresource
	before, now runtime.Object
	params      runtime.Object // what the policy's binding selects; nil: nothing
	refused     string         // "" is admitted, else a part of the message
}

// mayOnly begins every refusal but that of a token without a node.
const mayOnly = "node-1 may "

// TestNodeRestriction runs the shipped policy in the API server's own engine over
// what the driver and its sidecars write, and over what a stolen token would try.
func TestNodeRestriction(t *testing.T) {
	expectAnswers(t, shippedPolicy(t, "nodelvm-node-restriction"), volumeRequests(), claimRequests(), snapshotRequests(), groupSnapshotRequests(), otherRequests())
}

// expectAnswers runs a policy over requests.
func expectAnswers(t *testing.T, policy *admissionregistration.ValidatingAdmissionPolicy, requests ...[]request) {
	t.Helper()
	validator := compile(t, policy)
	for _, r := range slices.Concat(requests...) {
		t.Run(r.name, func(t *testing.T) {
			attributes := attributesOf(t, r)
			if !ruleMatches(policy, attributes) {
				t.Fatalf("no rule of the policy matches %s of %s", attributes.GetOperation(), attributes.GetResource())
			}
			switch denied := denials(t, validator, attributes, r.params); {
			case r.refused == "" && denied != "":
				t.Errorf("refused: %s", denied)
			case r.refused != "" && !strings.Contains(denied, r.refused):
				t.Errorf("answer %q, want a refusal that says %q", denied, r.refused)
			}
		})
	}
}

// TestVolumeClass: a node creates volumes of the driver's classes, with what the class says.
func TestVolumeClass(t *testing.T) {
	local := classNamed("local", "nodelvm.io")
	block := but(func(pv *core.PersistentVolume) {
		mode := core.PersistentVolumeBlock
		pv.Spec.VolumeMode, pv.Spec.CSI.FSType = &mode, ""
	})
	const differs = "are those of its storage class local"
	expectAnswers(t, shippedPolicy(t, "nodelvm-volume-class"), []request{
		{name: "as the class says", now: volume("node-1"), params: local},
		{name: "a raw block volume", now: block, params: local},
		{name: "a class without details", now: but(func(pv *core.PersistentVolume) { pv.Spec.MountOptions, pv.Spec.CSI.FSType = nil, "" }),
			params: &storage.StorageClass{ObjectMeta: local.ObjectMeta, Provisioner: "nodelvm.io"}},
		{name: "other classes do not matter", now: volume("node-1"), params: classNamed("other", "other.io")},
		{name: "another driver's class", now: volume("node-1"), params: classNamed("local", "other.io"), refused: "whose provisioner is other.io"},
		{name: "other mount options", now: mounted("dev", volume("node-1")), params: local, refused: differs},
		{name: "another reclaim policy", now: retained("node-1"), params: local, refused: differs},
		{name: "another file system", now: but(func(pv *core.PersistentVolume) { pv.Spec.CSI.FSType = "ext4" }), params: local, refused: differs},
	})
}

// classNamed is a class with all that a volume's class may say.
func classNamed(name, provisioner string) *storage.StorageClass {
	deletes := core.PersistentVolumeReclaimDelete
	return &storage.StorageClass{ObjectMeta: meta.ObjectMeta{Name: name}, Provisioner: provisioner, MountOptions: []string{"noatime"}, ReclaimPolicy: &deletes,
		Parameters: map[string]string{"volumeGroup": "vg", "csi.storage.k8s.io/fstype": "xfs"}}
}

// shippedPolicy reads a policy from the plain manifest and checks what the validator does not see.
func shippedPolicy(t *testing.T, name string) *admissionregistration.ValidatingAdmissionPolicy {
	t.Helper()
	return policyIn(t, shipped(t), name)
}

func policyIn(t *testing.T, docs []document, name string) *admissionregistration.ValidatingAdmissionPolicy {
	t.Helper()
	var policy admissionregistration.ValidatingAdmissionPolicy
	var binding admissionregistration.ValidatingAdmissionPolicyBinding
	for _, doc := range docs {
		into := map[string]any{"ValidatingAdmissionPolicy": &policy, "ValidatingAdmissionPolicyBinding": &binding}[doc.kind.Kind]
		if doc.name != name || into == nil {
			continue
		}
		doc.decode(t, into)
	}
	want := admissionregistration.Fail
	if name == "nodelvm-class-field" { // it sees the claims of all drivers
		want = admissionregistration.Ignore
	}
	if policy.Spec.FailurePolicy == nil || *policy.Spec.FailurePolicy != want {
		t.Errorf("failure policy %v, want %v", policy.Spec.FailurePolicy, want)
	}
	if binding.Spec.PolicyName != name || len(binding.Spec.ValidationActions) != 1 ||
		binding.Spec.ValidationActions[0] != admissionregistration.Deny || binding.Spec.MatchResources != nil {
		t.Errorf("binding %+v does not enforce policy %s everywhere", binding.Spec, name)
	}
	if params := binding.Spec.ParamRef; (policy.Spec.ParamKind != nil) != (params != nil) || params != nil &&
		(params.Selector == nil || len(params.Selector.MatchLabels)+len(params.Selector.MatchExpressions) > 0 ||
			*params.ParameterNotFoundAction != admissionregistration.AllowAction) { // Deny would refuse all users in a cluster without a StorageClass
		t.Errorf("binding %+v does not give policy %s all that it speaks of", binding.Spec, name)
	}
	return &policy
}
