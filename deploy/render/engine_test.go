package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"
)

// This file runs an admission policy as the API server does, with its own code.

// compile makes a validator of the policy with the API server's compiler.
func compile(t *testing.T, policy *admissionregistration.ValidatingAdmissionPolicy) validating.Validator {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	must(t, err)
	declared := cel.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: policy.Spec.ParamKind != nil}
	// Mode NewExpressions is stricter than what a server uses for stored policies: it is what
	// decides whether kubectl apply is accepted.
	mode := environment.NewExpressions
	for _, v := range policy.Spec.Variables {
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, declared, mode); result.Error != nil {
			t.Fatalf("variable %s: %v", v.Name, result.Error)
		}
	}
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		var message cel.ExpressionAccessor
		if v.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
		messages = append(messages, message)
	}
	evaluators := make([]cel.ConditionEvaluator, 3)
	for i, list := range [][]cel.ExpressionAccessor{conditions, validations, messages} {
		evaluators[i] = compiler.CompileCondition(list, declared, mode)
		for _, err := range evaluators[i].CompilationErrors() {
			t.Fatal(err)
		}
	}
	matcher := matchconditions.NewMatcher(evaluators[0], policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	none := compiler.CompileCondition(nil, declared, mode)
	return validating.NewValidator(evaluators[1], matcher, none, evaluators[2], policy.Spec.FailurePolicy, nil)
}

// denials returns the messages of all refusals; an error in an expression fails the test.
// params are what the policy's binding selects, one; nil: the policy has none.
func denials(t *testing.T, validator validating.Validator, attributes admission.Attributes, params runtime.Object) string {
	t.Helper()
	versioned, err := admission.NewVersionedAttributes(attributes, attributes.GetKind(), admission.NewObjectInterfacesFromScheme(scheme.Scheme))
	must(t, err)
	result := validator.Validate(context.Background(), attributes.GetResource(), versioned, params, nil, celconfig.RuntimeCELCostBudget, nil)
	var messages []string
	for _, d := range result.Decisions {
		if d.Evaluation == validating.EvalError {
			t.Fatalf("the policy fails: %s", d.Message)
		}
		if d.Action == validating.ActionDeny {
			messages = append(messages, d.Message)
		}
	}
	return strings.Join(messages, "; ")
}

func attributesOf(t *testing.T, r request) admission.Attributes {
	t.Helper()
	who := &user.DefaultInfo{Name: account, Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}, "authentication.kubernetes.io/pod-uid": {podUID}}}
	if r.node == "-" {
		who.Extra = nil
	}
	if r.user != "" {
		who.Name = r.user
	}
	operation, object := admission.Update, r.now
	switch {
	case r.before == nil:
		operation = admission.Create
	case r.now == nil:
		operation, object = admission.Delete, r.before
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	must(t, err)
	resource := kinds[0].GroupVersion().WithResource(map[string]string{
		"PersistentVolume": "persistentvolumes", "PersistentVolumeClaim": "persistentvolumeclaims",
		"CSIStorageCapacity": "csistoragecapacities", "Event": "events", "Node": "nodes",
		"VolumeSnapshot": "volumesnapshots", "VolumeSnapshotContent": "volumesnapshotcontents", "VolumeGroupSnapshotContent": "volumegroupsnapshotcontents",
	}[kinds[0].Kind])
	return admission.NewAttributesRecord(r.now, r.before, kinds[0], "", "x", resource, r.sub, operation, nil, false, who)
}

func ruleMatches(policy *admissionregistration.ValidatingAdmissionPolicy, a admission.Attributes) bool {
	has := func(list []string, want string) bool {
		return slices.Contains(list, want) || slices.Contains(list, "*")
	}
	resource := a.GetResource().Resource
	if a.GetSubresource() != "" {
		resource += "/" + a.GetSubresource()
	}
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		for _, operation := range rule.Operations {
			if string(operation) == string(a.GetOperation()) && has(rule.APIGroups, a.GetResource().Group) &&
				has(rule.APIVersions, a.GetResource().Version) && slices.Contains(rule.Resources, resource) {
				return true
			}
		}
	}
	return false
}
