package main

import (
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// userRoles are the rules of the roles for users, "resource: verbs" sorted, by kind and name.
func userRoles(t *testing.T, docs []document) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, doc := range docs {
		if kind := doc.kind.Kind; !slices.Contains([]string{"ClusterRole", "Role"}, kind) || !strings.HasSuffix(doc.name, "viewer") && !strings.HasSuffix(doc.name, "operator") {
			continue
		}
		var role rbac.ClusterRole // a Role has the same rules
		must(t, yaml.Unmarshal([]byte(doc.text), &role))
		var rules []string
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				rules = append(rules, resource+": "+strings.Join(rule.Verbs, ","))
			}
		}
		slices.Sort(rules)
		found[doc.kind.Kind+" "+doc.name] = rules
	}
	return found
}

// TestUserRoles: what each role for users allows, and that the chart binds no user to one.
func TestUserRoles(t *testing.T) {
	docs := renderWith(t, everything(t))
	read := []string{"csidrivers", "csinodes", "csistoragecapacities", "daemonsets", "deployments", "events", "nodes", "persistentvolumeclaims",
		"persistentvolumes", "poddisruptionbudgets", "pods", "resourcequotas", "storageclasses", "volumesnapshotcontents", "volumesnapshots"}
	reading := func(resources []string) (rules []string) {
		for _, r := range resources {
			rules = append(rules, r+": get,list")
		}
		return rules
	}
	viewer := append(reading(read), "validatingadmissionpolicies: get")
	slices.Sort(viewer)
	operator := append(slices.Clone(viewer), "subjectaccessreviews: create", "persistentvolumeclaims: patch")
	slices.Sort(operator)
	want := map[string][]string{
		"ClusterRole nodelvm-viewer": viewer, "Role nodelvm-viewer": {"pods/portforward: create"},
		"ClusterRole nodelvm-operator": operator, "Role nodelvm-operator": {"pods/exec: create", "pods/portforward: create"},
		"ClusterRole nodelvm-namespaced-viewer": reading([]string{"events", "persistentvolumeclaims", "pods", "volumesnapshots"}),
	}
	found := userRoles(t, docs)
	for role, rules := range want {
		if !slices.Equal(found[role], rules) {
			t.Errorf("%s allows\n%q\nwant\n%q", role, found[role], rules)
		}
	}
	if len(found) != len(want) {
		t.Errorf("roles %v", found)
	}
	for _, doc := range docs {
		if strings.HasSuffix(doc.kind.Kind, "Binding") && (strings.Contains(doc.text, "-viewer") || strings.Contains(doc.text, "-operator")) {
			t.Errorf("the chart binds accounts to a role for users:\n%s", doc.text)
		}
	}
}

func TestUserRolesSwitchedOff(t *testing.T) {
	values := everything(t)
	values["userRoles"] = map[string]any{"enabled": false}
	if found := userRoles(t, renderWith(t, values)); len(found) > 0 {
		t.Errorf("roles %v", found)
	}
}

// TestOperatorMovesNothing: without moves, the role for operators changes no claim.
func TestOperatorMovesNothing(t *testing.T) {
	values := everything(t)
	values["move"] = map[string]any{"enabled": false}
	rules := userRoles(t, renderWith(t, values))["ClusterRole nodelvm-operator"]
	if len(rules) == 0 || slices.Contains(rules, "persistentvolumeclaims: patch") {
		t.Errorf("nodelvm-operator allows %q", rules)
	}
}
