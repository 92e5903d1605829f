package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/report"
)

// TestLVMMetrics: every figure of a Host has its metric.
func TestLVMMetrics(t *testing.T) {
	read := func() host.Metrics {
		return host.Metrics{
			Groups: []host.GroupMetrics{{Name: "vg", UUID: "u", Size: 100, Free: 40, Volumes: 2, Hung: 3 * time.Second,
				Pools: []lvm.PoolMetrics{{Name: "p", Size: 50, Used: 20, MetadataSize: 8, MetadataUsed: 2, Promised: 70, Grown: 3}}}},
			Volumes:     map[lvm.VolumeState]int{lvm.StateReady: 2},
			Backlogs:    []report.Backlog{{Group: "vg", UUID: "u", Namespace: "shop", Volumes: 2, Bytes: 5, Held: 9}},
			WipeBacklog: 5, InFlight: 1, ReaderOff: true,
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(lvmCollector{read})
	want := `nodelvm_direct_metadata_read_enabled 0
nodelvm_operations_in_flight 1
nodelvm_thin_pool_extensions_total{thin_pool="p",vg="vg",vg_uuid="u"} 3
nodelvm_thin_pool_metadata_size_bytes{thin_pool="p",vg="vg",vg_uuid="u"} 8
nodelvm_thin_pool_metadata_used_bytes{thin_pool="p",vg="vg",vg_uuid="u"} 2
nodelvm_thin_pool_provisioned_bytes{thin_pool="p",vg="vg",vg_uuid="u"} 70
nodelvm_thin_pool_size_bytes{thin_pool="p",vg="vg",vg_uuid="u"} 50
nodelvm_thin_pool_used_bytes{thin_pool="p",vg="vg",vg_uuid="u"} 20
nodelvm_volume_group_blocked_seconds{vg="vg",vg_uuid="u"} 3
nodelvm_volume_group_free_bytes{vg="vg",vg_uuid="u"} 40
nodelvm_volume_group_size_bytes{vg="vg",vg_uuid="u"} 100
nodelvm_volume_group_volumes{vg="vg",vg_uuid="u"} 2
nodelvm_volume_group_wipe_backlog_bytes{claim_namespace="shop",vg="vg",vg_uuid="u"} 5
nodelvm_volume_group_wipe_backlog_volumes{claim_namespace="shop",vg="vg",vg_uuid="u"} 2
nodelvm_volumes{state="creating"} 0
nodelvm_volumes{state="deleting"} 0
nodelvm_volumes{state="ready"} 2
nodelvm_volumes{state="zeroing"} 0`
	if text := seriesOf(t, registry); text != want {
		t.Errorf("metrics:\n%s\nwant:\n%s", text, want)
	}
}

// seriesOf prints all series of a registry, one a line, sorted.
func seriesOf(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := family.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			lines = append(lines, fmt.Sprintf("%s %g", name, m.GetGauge().GetValue()+m.GetCounter().GetValue()))
		}
	}
	return strings.Join(lines, "\n")
}
