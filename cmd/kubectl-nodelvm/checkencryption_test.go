package main

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/nodelvm/nodelvm/api"
)

func policyOf(expression string) *keyPolicy {
	var policy admissionv1.ValidatingAdmissionPolicy
	policy.Spec.Variables = []admissionv1.Variable{{Name: "node", Expression: "'local'"}, {Name: encryptedClasses, Expression: expression}}
	return parseKeyPolicy(&policy)
}

// TestEncryptedClassesOfThePolicy: the plugin parses any list of names, and ignores other expressions.
func TestEncryptedClassesOfThePolicy(t *testing.T) {
	for expression, want := range map[string][]string{"[]": {}, " [ ] ": {}, "['a']": {"a"}, "['a', 'b-c.d']": {"a", "b-c.d"}, `["a",'b']`: {"a", "b"}} {
		if p := policyOf(expression); p == nil || !slices.Equal(p.classes, want) {
			t.Errorf("%s: %v, want %q", expression, p, want)
		}
	}
	for _, expression := range []string{"", "variables.others", "['a'] + ['b']", "['a'", "'a'"} {
		if p := policyOf(expression); p != nil {
			t.Errorf("%s: %q", expression, p.classes)
		}
	}
}

// TestKeyPolicyOfTheManifest: the released policy has the variable, and it lists no class.
func TestKeyPolicyOfTheManifest(t *testing.T) {
	policy := shipped[admissionv1.ValidatingAdmissionPolicy](t, "ValidatingAdmissionPolicy", restrictionPolicy)
	if p := parseKeyPolicy(&policy); p == nil || len(p.classes) > 0 {
		t.Errorf("the policy names %v", p)
	}
}

// TestEncryptedClassesThatAreAdmitted: a class that the policy names, any class without the policy, and an unencrypted class have
// no finding.
func TestEncryptedClassesThatAreAdmitted(t *testing.T) {
	for what, change := range map[string]func(*facts){
		"named": func(f *facts) {
			f.classes[0].Parameters[api.ParameterEncryption], f.keyPolicy = "luks2", policyOf("['local']")
			f.classes[0].Parameters[api.ParameterStageSecretName] = "${pvc.name}-key"
		},
		"no policy":     func(f *facts) { f.classes[0].Parameters[api.ParameterEncryption] = "luks2" },
		"no encryption": func(f *facts) { f.keyPolicy = policyOf("[]") },
	} {
		f := sound()
		change(f)
		if found := examine(f).Findings; len(found) > 0 {
			t.Errorf("%s: %+v", what, found)
		}
	}
}
