package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

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
	ports := map[string]bool{}
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			ports[port.Name] = true
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
				Port, Interval string
				Relabelings    []struct {
					SourceLabels []string
					TargetLabel  string
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
		if !ports[e.Port] || e.Interval != "1m" || len(e.Relabelings) != 1 || e.Relabelings[0].TargetLabel != "node" {
			t.Errorf("endpoint %+v; the pods have the ports %v", e, ports)
		}
		delete(ports, e.Port)
	}
	if len(ports) > 0 || monitor.Metadata.Labels["release"] != "prometheus" {
		t.Errorf("labels %v; nobody asks the ports %v", monitor.Metadata.Labels, ports)
	}
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
