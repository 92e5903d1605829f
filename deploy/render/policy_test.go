package main

import (
	"slices"
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
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
	refused     string // "" is admitted, else a part of the message
}

// mayOnly begins every refusal but that of a token without a node.
const mayOnly = "node-1 may "

// TestNodeRestriction runs the shipped policy in the API server's own engine over
// what the driver and its sidecars write, and over what a stolen token would try.
func TestNodeRestriction(t *testing.T) {
	policy := shippedPolicy(t, "nodelvm-node-restriction")
	validator := compile(t, policy)
	for _, r := range slices.Concat(volumeRequests(), claimRequests(), snapshotRequests(), groupSnapshotRequests(), otherRequests()) {
		t.Run(r.name, func(t *testing.T) {
			attributes := attributesOf(t, r)
			if !ruleMatches(policy, attributes) {
				t.Fatalf("no rule of the policy matches %s of %s", attributes.GetOperation(), attributes.GetResource())
			}
			expectDenied(t, denials(t, validator, attributes, nil), r.refused)
		})
	}
}

// expectDenied compares a policy's answer with the part of a refusal that is wanted; "": admitted.
func expectDenied(t *testing.T, denied, refused string) {
	t.Helper()
	switch {
	case refused == "" && denied != "":
		t.Errorf("refused: %s", denied)
	case refused != "" && !strings.Contains(denied, refused):
		t.Errorf("answer %q, want a refusal that says %q", denied, refused)
	}
}

// TestVolumeClass: a node creates volumes of the driver's classes, with what the class says.
func TestVolumeClass(t *testing.T) {
	policy := shippedPolicy(t, "nodelvm-volume-class")
	validator := compile(t, policy)
	class := func(change func(*storage.StorageClass)) *storage.StorageClass {
		retain := core.PersistentVolumeReclaimDelete
		c := &storage.StorageClass{Provisioner: "nodelvm.io", MountOptions: []string{"noatime"}, ReclaimPolicy: &retain,
			Parameters: map[string]string{"volumeGroup": "vg", "csi.storage.k8s.io/fstype": "xfs"}}
		c.Name = "local"
		change(c)
		return c
	}
	block := but(func(pv *core.PersistentVolume) {
		mode := core.PersistentVolumeBlock
		pv.Spec.VolumeMode, pv.Spec.CSI.FSType = &mode, ""
	})
	const differs = "are those of its storage class local"
	for _, r := range []struct {
		name    string
		pv      *core.PersistentVolume
		class   func(*storage.StorageClass)
		refused string
	}{
		{"as the class says", volume("node-1"), func(*storage.StorageClass) {}, ""},
		{"a raw block volume", block, func(*storage.StorageClass) {}, ""},
		{"a class without details", but(func(pv *core.PersistentVolume) { pv.Spec.MountOptions, pv.Spec.CSI.FSType = nil, "" }),
			func(c *storage.StorageClass) { c.MountOptions, c.ReclaimPolicy, c.Parameters = nil, nil, nil }, ""},
		{"other classes do not matter", volume("node-1"), func(c *storage.StorageClass) { c.Name, c.Provisioner = "other", "other.io" }, ""},
		{"another driver's class", volume("node-1"), func(c *storage.StorageClass) { c.Provisioner = "other.io" }, "whose provisioner is other.io"},
		{"other mount options", but(func(pv *core.PersistentVolume) { pv.Spec.MountOptions = []string{"dev"} }), func(*storage.StorageClass) {}, differs},
		{"another reclaim policy", retained("node-1"), func(*storage.StorageClass) {}, differs},
		{"another file system", but(func(pv *core.PersistentVolume) { pv.Spec.CSI.FSType = "ext4" }), func(*storage.StorageClass) {}, differs},
	} {
		t.Run(r.name, func(t *testing.T) {
			attributes := attributesOf(t, request{now: r.pv})
			if !ruleMatches(policy, attributes) {
				t.Fatal("no rule of the policy matches the creation of a volume")
			}
			expectDenied(t, denials(t, validator, attributes, class(r.class)), r.refused)
		})
	}
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
