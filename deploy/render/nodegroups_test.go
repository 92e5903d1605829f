package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
)

// TestNodeGroupsNeedTheJanitor: the chart refuses node groups that nothing would publish, and gives the janitor rights over capacity only
// where it needs them.
func TestNodeGroupsNeedTheJanitor(t *testing.T) {
	groups := map[string]any{"nodeGroups": []any{map[string]any{"name": "nvme", "labels": map[string]any{"pool": "nvme"}}}}
	chart := filepath.Join(deployDir, chartDir)
	if _, err := render(chart, map[string]any{"autoscaler": groups}); err == nil || !strings.Contains(err.Error(), "janitor.enabled") {
		t.Errorf("without the janitor: %v", err)
	}
	with, err := render(chart, map[string]any{"autoscaler": groups, "janitor": map[string]any{"enabled": true}})
	if err != nil {
		t.Fatal(err)
	}
	if !writesCapacity(rulesOf(t, split(t, with), "nodelvm-janitor")) || !strings.Contains(with, "--node-groups-file=/etc/nodelvm/node-groups.yaml") {
		t.Error("with node groups the janitor may not publish capacity, or has no file")
	}
	if writesCapacity(rulesOf(t, splitJanitor(t), "nodelvm-janitor")) {
		t.Error("without node groups the janitor may write capacity")
	}
}

func writesCapacity(rules []rbac.PolicyRule) bool {
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			if resource == "csistoragecapacities" && slices.Contains(rule.Verbs, "update") {
				return true
			}
		}
	}
	return false
}
