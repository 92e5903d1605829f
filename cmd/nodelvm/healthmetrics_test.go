package main

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm"
)

// sick is a part with conditions, or one that fails.
type sick struct {
	found []lvm.Condition
	err   error
}

func (s sick) Health(context.Context) ([]lvm.Condition, error) { return s.found, s.err }

func TestHealthMetrics(t *testing.T) {
	degraded := lvm.Condition{Type: lvm.ConditionVolumeDegraded, Group: "vg-a", Volume: lvm.Volume{ID: lvm.ID{LV: "pvc-1"}, Claim: "shop/data"}}
	log, err := newLogger(&buffer{}, "error", "json")
	if err != nil {
		t.Fatal(err)
	}
	read := healthOf(
		sick{found: []lvm.Condition{degraded, degraded}},
		sick{err: errors.New("the kernel does not answer")},
		sick{found: []lvm.Condition{{Type: lvm.ConditionDiskUnresponsive, Group: "vg-b"}}},
	)
	if found, err := read(t.Context()); len(found) != 3 || err == nil {
		t.Errorf("found %v, %v", found, err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(healthCollector{read: read, log: log})
	expectMetric(t, registry, "nodelvm_volume_condition", map[string]string{"condition": "VolumeDegraded", "vg": "vg-a", "lv": "pvc-1", "claim": "shop/data"})
	expectMetric(t, registry, "nodelvm_volume_condition", map[string]string{"condition": "DiskUnresponsive", "vg": "vg-b", "lv": "", "claim": ""})
}
