package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodelvm/nodelvm/api"
)

// shipped reads the object with a kind and name from the released manifest.
func shipped[T any](t *testing.T, kind, name string) T {
	t.Helper()
	text, err := os.ReadFile("../../deploy/nodelvm.yaml")
	must(t, err)
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		var head metav1.PartialObjectMetadata
		must(t, yaml.Unmarshal(part, &head))
		if head.Kind == kind && head.Name == name {
			var object T
			must(t, yaml.Unmarshal(part, &object))
			return object
		}
	}
	t.Fatalf("deploy/nodelvm.yaml has no %s %s", kind, name)
	panic("unreachable")
}

// TestDoctorRightsMatchChart: doctor checks exactly the rights that the chart gives.
func TestDoctorRightsMatchChart(t *testing.T) {
	var want []right
	add := func(rules []rbacv1.PolicyRule, own bool) {
		for _, rule := range rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						r := right{group: group, resource: resource, verb: verb, own: own}
						if len(rule.ResourceNames) > 0 {
							r.name = rule.ResourceNames[0]
						}
						want = append(want, r)
					}
				}
			}
		}
	}
	add(shipped[rbacv1.ClusterRole](t, "ClusterRole", "nodelvm").Rules, false)
	add(shipped[rbacv1.Role](t, "Role", "nodelvm").Rules, true)
	got := slices.DeleteFunc(rights(), func(r right) bool { return r.withheld })
	for i := range got {
		got[i].snapshots = false // the manifest is rendered with csi-snapshotter
	}
	for _, r := range want {
		if !slices.Contains(got, r) {
			t.Errorf("doctor does not ask whether the driver may %s", r)
		}
	}
	for _, r := range got {
		if !slices.Contains(want, r) {
			t.Errorf("doctor asks whether the driver may %s, and the chart does not give it", r)
		}
	}
}

// TestDoctorAcceptsShippedManifests: doctor finds no fault in the released manifest, whose sidecars have the tested versions.
func TestDoctorAcceptsShippedManifests(t *testing.T) {
	f := sound()
	daemonSet := shipped[appsv1.DaemonSet](t, "DaemonSet", "nodelvm")
	daemonSet.Namespace, daemonSet.Status.DesiredNumberScheduled = "nodelvm-system", 2
	driver := shipped[storagev1.CSIDriver](t, "CSIDriver", api.DriverName)
	f.daemonSet, f.driver = &daemonSet, &driver
	if found := examine(f).Findings; len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	for name, major := range testedMajor {
		if got, ok := majorOf(f.container(name).Image); !ok || got != major {
			t.Errorf("%s: the chart has %s, and doctor knows v%d", name, f.container(name).Image, major)
		}
	}
	labels := metav1.FormatLabelSelector(daemonSet.Spec.Selector)
	if labels != "app.kubernetes.io/component=node,app.kubernetes.io/name=nodelvm" {
		t.Errorf("the driver's pods are found by %s", labels)
	}
}

// TestMoveFlagsAreThoseOfTheChart: the plugin finds out from a pod's arguments, as the chart writes them, whether its driver moves volumes.
func TestMoveFlagsAreThoseOfTheChart(t *testing.T) {
	template, err := os.ReadFile("../../deploy/chart/nodelvm/templates/daemonset.yaml")
	must(t, err)
	for _, flag := range []string{moveFlag + ":", moveRateFlag} {
		if !bytes.Contains(template, []byte("- "+flag)) {
			t.Errorf("the chart's DaemonSet has no argument that begins with %s", flag)
		}
	}
}

// TestReferenceHasAllCommands: docs/reference/kubectl-plugin.md has a row for each subcommand.
func TestReferenceHasAllCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/kubectl-plugin.md")
	must(t, err)
	commands := newRoot().Commands()
	if len(commands) < 5 {
		t.Fatalf("only %d subcommands were found", len(commands))
	}
	for _, c := range commands {
		if row := "\n| `kubectl nodelvm " + c.Use + "` |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/reference/kubectl-plugin.md lacks a row that begins with %q", row[1:])
		}
	}
}
