package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestMonitoring holds the Prometheus Operator's objects to the pod and to the file of alerts.
func TestMonitoring(t *testing.T) {
	text, err := render(filepath.Join(deployDir, chartDir), everything(t))
	if err != nil {
		t.Fatal(err)
	}
	docs := split(t, text)
	pod := daemonSet(t, docs).Spec.Template
	served := map[string]string{"/metrics": ""} // the container that the label names, by path; "": that of the port
	for _, arg := range pod.Spec.Containers[0].Args {
		list, _ := strings.CutPrefix(arg, "--sidecar-metrics=")
		for sidecar := range strings.SplitSeq(list, ",") {
			if name, address, ok := strings.Cut(sidecar, "="); ok && list != arg {
				served["/metrics/"+name] = name
				expectServed(t, pod.Spec.Containers, name, address)
			}
		}
	}
	var monitor struct {
		APIVersion, Kind string
		Metadata         struct {
			Name, Namespace string
			Labels          map[string]string
		}
		Spec struct {
			Selector            struct{ MatchLabels map[string]string }
			PodMetricsEndpoints []struct {
				Port, Path, Interval string
				Authorization        struct{ Credentials struct{ Name, Key string } }
				Relabelings          []struct {
					SourceLabels             []string
					TargetLabel, Replacement string
				}
			}
		}
	}
	only(t, docs, "PodMonitor", &monitor)
	for key, value := range monitor.Spec.Selector.MatchLabels {
		if pod.Labels[key] != value {
			t.Errorf("the monitor selects %s=%s, which the pods have not", key, value)
		}
	}
	for _, e := range monitor.Spec.PodMetricsEndpoints {
		container, ok := served[e.Path]
		if !ok || e.Port != "http" || e.Interval != "1m" || e.Relabelings[0].TargetLabel != "node" ||
			e.Authorization.Credentials.Name != "nodelvm-metrics" || e.Authorization.Credentials.Key != "token" {
			t.Errorf("endpoint %+v; the driver serves %v", e, served)
		}
		if own := len(e.Relabelings) == 1; own != (container == "") || !own && (e.Relabelings[1].TargetLabel != "container" || e.Relabelings[1].Replacement != container) {
			t.Errorf("endpoint %+v does not name the container %q: two series would be one", e, container)
		}
		delete(served, e.Path)
	}
	if len(served) > 0 || monitor.Metadata.Labels["release"] != "prometheus" {
		t.Errorf("labels %v; nobody asks for %v", monitor.Metadata.Labels, served)
	}
	expectReaders(t, docs)
	var rule struct {
		APIVersion, Kind string
		Metadata         struct {
			Name, Namespace string
			Labels          map[string]string
		}
		Spec map[string]any
	}
	only(t, docs, "PrometheusRule", &rule)
	file, err := os.ReadFile(filepath.Join(deployDir, chartDir, "files", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := yaml.Unmarshal(file, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rule.Spec, want) {
		t.Errorf("the rule holds\n%v\nthe file\n%v", rule.Spec, want)
	}
}

// expectServed: the sidecar serves its metrics where the driver looks for them.
func expectServed(t *testing.T, containers []core.Container, name, address string) {
	t.Helper()
	for _, c := range containers {
		if c.Name == name && slices.Contains(c.Args, "--http-endpoint="+address) {
			return
		}
	}
	t.Errorf("no container %s serves metrics at %s", name, address)
}

// expectReaders: the PodMonitor's token is of an account that may read the driver's pages, and the values' accounts may, and no
// other.
func expectReaders(t *testing.T, docs []document) {
	t.Helper()
	var binding rbac.ClusterRoleBinding
	var role rbac.ClusterRole
	var secret core.Secret
	for _, doc := range docs {
		into := map[string]any{"ClusterRoleBinding nodelvm-metrics-reader": &binding, "ClusterRole nodelvm-metrics-reader": &role,
			"Secret nodelvm-metrics": &secret}[doc.kind.Kind+" "+doc.name]
		if into == nil {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(doc.text), into); err != nil {
			t.Fatal(err)
		}
	}
	want := []rbac.Subject{
		{Kind: "ServiceAccount", Name: "nodelvm-metrics", Namespace: namespace}, {Kind: "ServiceAccount", Name: "prometheus", Namespace: "monitoring"},
	}
	if !slices.Equal(binding.Subjects, want) || binding.RoleRef.Name != role.Name || binding.RoleRef.Kind != "ClusterRole" {
		t.Errorf("readers %v of %v, want %v", binding.Subjects, binding.RoleRef, want)
	}
	if len(role.Rules) != 1 || !slices.Equal(role.Rules[0].Verbs, []string{"get"}) || len(role.Rules[0].Resources) > 0 ||
		!slices.Equal(role.Rules[0].NonResourceURLs, []string{"/metrics", "/metrics/csi-provisioner", "/metrics/csi-snapshotter", "/v1/status"}) {
		t.Errorf("a reader may %+v", role.Rules)
	}
	if secret.Type != core.SecretTypeServiceAccountToken || secret.Annotations[core.ServiceAccountNameKey] != "nodelvm-metrics" {
		t.Errorf("the monitor's token is of %+v", secret)
	}
}
