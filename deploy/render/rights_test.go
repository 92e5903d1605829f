package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestAccountsGetNoFurther: neither account can read a Secret, run a pod, get another account's token, change a class, or give rights to any account.
func TestAccountsGetNoFurther(t *testing.T) {
	writes := func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) }
	rules := 0
	for account, docs := range map[string][]document{"nodelvm": shipped(t), "nodelvm-controller": splitController(t)} {
		for _, rule := range rulesOf(t, docs, account) {
			rules++
			for _, what := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
				if strings.Contains(what, "*") {
					t.Errorf("%s: a rule has a wildcard: %v", account, rule)
				}
			}
			for _, resource := range rule.Resources {
				switch kind, sub, _ := strings.Cut(resource, "/"); {
				case kind == "secrets" || kind == "serviceaccounts" || slices.Contains(rule.APIGroups, rbac.GroupName),
					strings.HasSuffix(kind, "classes") && slices.ContainsFunc(rule.Verbs, writes),
					kind == "pods" && (sub != "" || slices.ContainsFunc(rule.Verbs, func(v string) bool {
						return writes(v) && (v != "delete" || account != "nodelvm-controller")
					})):
					t.Errorf("%s has the verbs %q on %s", account, rule.Verbs, resource)
				}
			}
		}
	}
	if rules < 20 {
		t.Errorf("only %d rules were found", rules)
	}
}

// TestRightsOfSwitches: group snapshots add exactly these rights, and I/O limits none, because csi-provisioner has what they need.
func TestRightsOfSwitches(t *testing.T) {
	on := map[string]any{"enabled": true}
	contents := []string{
		"groupsnapshot.storage.k8s.io volumegroupsnapshotcontents get", "groupsnapshot.storage.k8s.io volumegroupsnapshotcontents list",
		"groupsnapshot.storage.k8s.io volumegroupsnapshotcontents patch", "groupsnapshot.storage.k8s.io volumegroupsnapshotcontents watch"}
	for name, test := range map[string]struct {
		account string
		values  map[string]any
		want    []string
	}{
		"groupSnapshots":                   {"nodelvm", map[string]any{"groupSnapshots": on}, append(contents, "groupsnapshot.storage.k8s.io volumegroupsnapshotcontents/status patch")},
		"groupSnapshots of the controller": {"nodelvm-controller", map[string]any{"groupSnapshots": on}, contents},
		"ioLimits":                         {"nodelvm", map[string]any{"ioLimits": on}, nil},
	} {
		var added []string
		test.values["controller"] = on
		none, rights := rightsOf(t, map[string]any{"controller": on}, test.account), rightsOf(t, test.values, test.account)
		for _, right := range rights {
			if !slices.Contains(none, right) {
				added = append(added, right)
			}
		}
		if !slices.Equal(added, test.want) || len(rights) != len(none)+len(test.want) {
			t.Errorf("%s adds %q, want %q; in all %d to %d rights", name, added, test.want, len(rights), len(none))
		}
	}
	none := rightsOf(t, nil, "nodelvm")
	if needed := []string{"storage.k8s.io volumeattributesclasses get", " persistentvolumes patch", " persistentvolumeclaims/status patch"}; !contains(none, needed) || len(none) < 40 {
		t.Errorf("%q lacks some of %q", none, needed)
	}
}

func contains(all, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(right string) bool { return !slices.Contains(all, right) })
}

// rightsOf are the rights of an account with these values of the chart, "GROUP RESOURCE VERB" each.
func rightsOf(t *testing.T, values map[string]any, account string) (rights []string) {
	t.Helper()
	for _, rule := range rulesOf(t, renderWith(t, values), account) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					rights = append(rights, group+" "+resource+" "+verb)
				}
			}
		}
	}
	slices.Sort(rights)
	return slices.Compact(rights)
}

// TestControllerHasNoPowerOnANode: its pod has no privilege and no path of the host, runs under its own account, and is not installed by default.
func TestControllerHasNoPowerOnANode(t *testing.T) {
	var d apps.Deployment
	only(t, splitController(t), "Deployment", &d)
	pod := d.Spec.Template.Spec
	if pod.ServiceAccountName != "nodelvm-controller" || pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Errorf("account %s, namespaces of the host: %v %v %v", pod.ServiceAccountName, pod.HostNetwork, pod.HostPID, pod.HostIPC)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			t.Errorf("volume %s is a path of the host", v.Name)
		}
	}
	for _, c := range pod.Containers {
		if c.SecurityContext.SeccompProfile == nil {
			c.SecurityContext.SeccompProfile = pod.SecurityContext.SeccompProfile
		}
		checkPrivileges(t, c.Name, *c.SecurityContext, false)
	}
	for _, doc := range shipped(t) {
		if strings.Contains(doc.name, "controller") {
			t.Errorf("%s %s is in %s", doc.kind.Kind, doc.name, manifest)
		}
	}
}

func splitController(t *testing.T) []document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, controller))
	must(t, err)
	return split(t, string(text))
}

// rulesOf are the rules of the roles that are bound to an account.
func rulesOf(t *testing.T, docs []document, account string) (rules []rbac.PolicyRule) {
	t.Helper()
	roles := map[string][]rbac.PolicyRule{}
	var bound []string
	for _, doc := range docs {
		var role struct {
			Rules    []rbac.PolicyRule `json:"rules"`
			RoleRef  rbac.RoleRef      `json:"roleRef"`
			Subjects []rbac.Subject    `json:"subjects"`
		}
		if doc.kind.Group != rbac.GroupName {
			continue
		}
		must(t, yaml.Unmarshal([]byte(doc.text), &role))
		roles[doc.kind.Kind+" "+doc.name] = role.Rules
		if slices.ContainsFunc(role.Subjects, func(s rbac.Subject) bool { return s.Name == account }) {
			bound = append(bound, role.RoleRef.Kind+" "+role.RoleRef.Name)
		}
	}
	for _, name := range bound {
		if len(roles[name]) == 0 {
			t.Errorf("%s is bound to %s, which has no rules", account, name)
		}
		rules = append(rules, roles[name]...)
	}
	return rules
}
