package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
)

// TestNodeGroupsNeedTheController: the chart refuses node groups that nothing would publish. Without node groups the controller may not write
// capacity, but it may delete that of former ones.
func TestNodeGroupsNeedTheController(t *testing.T) {
	groups := map[string]any{"nodeGroups": []any{map[string]any{"name": "nvme", "labels": map[string]any{"pool": "nvme"}}}}
	chart := filepath.Join(deployDir, chartDir)
	if _, err := render(chart, map[string]any{"autoscaler": groups}); err == nil || !strings.Contains(err.Error(), "controller.enabled") {
		t.Errorf("without the controller: %v", err)
	}
	with, err := render(chart, map[string]any{"autoscaler": groups, "controller": map[string]any{"enabled": true}})
	must(t, err)
	if got := capacityVerbs(rulesOf(t, split(t, with), "nodelvm-controller")); !slices.Equal(got, []string{"create", "delete", "list", "update", "watch"}) || !strings.Contains(with, "--node-groups-file=/etc/nodelvm/node-groups.yaml") {
		t.Errorf("with node groups the controller has the verbs %q on capacity, or no file", got)
	}
	if got := capacityVerbs(rulesOf(t, splitController(t), "nodelvm-controller")); !slices.Equal(got, []string{"delete", "list", "watch"}) {
		t.Errorf("without node groups the controller has the verbs %q on capacity", got)
	}
}

// capacityVerbs are the verbs on CSIStorageCapacities, in the order of the alphabet.
func capacityVerbs(rules []rbac.PolicyRule) (verbs []string) {
	for _, rule := range rules {
		if slices.Contains(rule.Resources, "csistoragecapacities") {
			verbs = append(verbs, rule.Verbs...)
		}
	}
	return slices.Sorted(slices.Values(verbs))
}
