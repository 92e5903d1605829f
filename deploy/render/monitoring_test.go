package main

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestMonitoring holds the Prometheus Operator's objects to the pod and to the file of alerts.
func TestMonitoring(t *testing.T) {
	docs := renderWith(t, everything(t))
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
	expectMonitors(t, docs, "PodMonitor", served, pod.Labels)
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
	must(t, err)
	var want map[string]any
	must(t, yaml.Unmarshal(file, &want))
	if !reflect.DeepEqual(rule.Spec, want) {
		t.Errorf("the rule holds\n%v\nthe file\n%v", rule.Spec, want)
	}
}

// monitor is a PodMonitor or a ServiceMonitor of the Prometheus Operator.
type monitor struct {
	APIVersion, Kind string
	Metadata         struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Spec struct {
		Selector                       struct{ MatchLabels map[string]string }
		PodMetricsEndpoints, Endpoints []struct {
			Port, Path, Interval string
			Authorization        struct{ Credentials struct{ Name, Key string } }
			Relabelings          []struct {
				SourceLabels             []string
				TargetLabel, Replacement string
			}
		}
	}
}

// expectMonitors: Prometheus asks for each page that the drivers serve, by the container's name, and for the controller's without a token.
func expectMonitors(t *testing.T, docs []document, kind string, served map[string]string, labels map[string]string) {
	t.Helper()
	found := 0
	for _, doc := range docs {
		if doc.kind.Kind != kind {
			continue
		}
		found++
		var m monitor
		doc.decode(t, &m)
		if m.Metadata.Labels["release"] != "prometheus" {
			t.Errorf("%s has the labels %v", doc.name, m.Metadata.Labels)
		}
		endpoints := slices.Concat(m.Spec.PodMetricsEndpoints, m.Spec.Endpoints)
		if doc.name == "nodelvm-controller" {
			if len(endpoints) != 1 || endpoints[0].Port != "http" || endpoints[0].Path != "/metrics" || endpoints[0].Authorization.Credentials.Name != "" ||
				m.Spec.Selector.MatchLabels["app.kubernetes.io/component"] != "controller" {
				t.Errorf("the controller's monitor is %+v", m.Spec)
			}
			continue
		}
		for key, value := range m.Spec.Selector.MatchLabels {
			if labels[key] != value {
				t.Errorf("the monitor selects %s=%s, which the pods have not", key, value)
			}
		}
		left := maps.Clone(served)
		for _, e := range endpoints {
			container, ok := left[e.Path]
			if !ok || e.Port != "http" || e.Interval != "1m" || e.Relabelings[0].TargetLabel != "node" ||
				e.Authorization.Credentials.Name != "nodelvm-metrics" || e.Authorization.Credentials.Key != "token" {
				t.Errorf("endpoint %+v; the driver serves %v", e, served)
			}
			if own := len(e.Relabelings) == 1; own != (container == "") || !own && (e.Relabelings[1].TargetLabel != "container" || e.Relabelings[1].Replacement != container) {
				t.Errorf("endpoint %+v does not name the container %q: two series would be one", e, container)
			}
			delete(left, e.Path)
		}
		if len(left) > 0 {
			t.Errorf("%s asks for none of %v", doc.name, left)
		}
	}
	if found != 2 {
		t.Errorf("%d objects of kind %s, want one for the drivers and one for the controller", found, kind)
	}
}

// TestAlertsNameTheContainers: the alerts on a target that is down select it by the name of its container.
func TestAlertsNameTheContainers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deployDir, chartDir, "files", "alerts.yaml"))
	must(t, err)
	var d apps.Deployment
	only(t, splitController(t), "Deployment", &d)
	for _, pod := range []core.PodSpec{d.Spec.Template.Spec, daemonSet(t, shipped(t)).Spec.Template.Spec} {
		if name := pod.Containers[0].Name; !strings.Contains(string(text), `up{container="`+name+`",`) {
			t.Errorf("no alert selects the container %s", name)
		}
	}
}

// TestServiceMonitor: in place of the PodMonitors, for the same pages, with a Service each that selects the pods.
func TestServiceMonitor(t *testing.T) {
	values := everything(t)
	values["metrics"] = map[string]any{"serviceMonitor": map[string]any{"enabled": true, "interval": "1m", "labels": map[string]any{"release": "prometheus"}},
		"readers": []any{map[string]any{"name": "prometheus", "namespace": "monitoring"}}}
	docs := renderWith(t, values)
	pod := daemonSet(t, docs).Spec.Template
	served := map[string]string{"/metrics": "", "/metrics/csi-provisioner": "csi-provisioner", "/metrics/csi-snapshotter": "csi-snapshotter"}
	expectMonitors(t, docs, "ServiceMonitor", served, pod.Labels)
	expectReaders(t, docs)
	services := 0
	for _, doc := range docs {
		if doc.kind.Kind == "PodMonitor" {
			t.Error("there is a PodMonitor too: Prometheus would scrape each metric twice")
		}
		if doc.kind.Kind != "Service" {
			continue
		}
		services++
		var service core.Service
		doc.decode(t, &service)
		if service.Spec.ClusterIP != core.ClusterIPNone || !service.Spec.PublishNotReadyAddresses || len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Name != "http" {
			t.Errorf("service %+v", service.Spec)
		}
		for key, value := range service.Spec.Selector {
			if doc.name == "nodelvm-metrics" && pod.Labels[key] != value || service.Labels[key] != value {
				t.Errorf("%s selects %s=%s", doc.name, key, value)
			}
		}
	}
	if services != 2 {
		t.Errorf("%d services", services)
	}
	values["metrics"] = map[string]any{"serviceMonitor": map[string]any{"enabled": true}, "podMonitor": map[string]any{"enabled": true}}
	if _, err := render(filepath.Join(deployDir, chartDir), values); err == nil || !strings.Contains(err.Error(), "scrape each metric twice") {
		t.Errorf("both monitors: %v", err)
	}
}

// TestDashboard: the ConfigMap has the label by which Grafana's sidecar finds it, and the file.
func TestDashboard(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(deployDir, chartDir, "files", "dashboard.json"))
	must(t, err)
	for enabled, values := range map[bool]map[string]any{true: everything(t), false: {}} {
		found := false
		for _, doc := range renderWith(t, values) {
			if doc.name != "nodelvm-dashboard" {
				continue
			}
			found = true
			var config core.ConfigMap
			doc.decode(t, &config)
			if config.Labels["grafana_dashboard"] != "1" || config.Annotations["grafana_folder"] != "Storage" || strings.TrimSpace(config.Data["nodelvm.json"]) != strings.TrimSpace(string(file)) {
				t.Errorf("labels %v, annotations %v, and %d bytes of %d", config.Labels, config.Annotations, len(config.Data["nodelvm.json"]), len(file))
			}
		}
		if found != enabled {
			t.Errorf("the ConfigMap is there: %v, want %v", found, enabled)
		}
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
		doc.decode(t, into)
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
