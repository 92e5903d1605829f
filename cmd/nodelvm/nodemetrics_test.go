package main

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/internal/logs"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

const testGroup = "AAAAAA-0000-0000-0000-0000-0000-000001"

func entry(lv, cluster, state string) report.Volume {
	return report.Volume{ID: testGroup + "/" + lv, Group: "vg", LV: lv, Name: lv, Claim: "shop/" + lv, Cluster: cluster, State: state, Size: 1000}
}

// TestNodeMetrics: every figure of the document has its series, once. Of volumes, only the ready ones of this cluster have series.
func TestNodeMetrics(t *testing.T) {
	used, ready := lvm.Bytes(300), string(lvm.StateReady)
	thin, hung, btrfs, unclaimed := entry("thin", "ours", ready), entry("hung", "ours", ready), entry("btrfs", "ours", ready), entry("raw", "ours", ready)
	thin.Used, unclaimed.Claim = &used, ""
	thin.FileSystem = &report.FileSystem{Type: "xfs", Size: 900, Used: 400, Available: 450, Inodes: 10, InodesUsed: 4, InodesFree: 6}
	btrfs.FileSystem = &report.FileSystem{Type: "btrfs", Size: 900, Used: 100, Available: 800}
	hung.FileSystem = &report.FileSystem{Type: "xfs", Error: "has not answered"}
	thin.IO = &report.IO{Reads: 3, Writes: 4, ReadBytes: 1500, WrittenBytes: 2000, ReadSeconds: 0.5, WriteSeconds: 2, WriteIOPSLimit: 100, ReadBandwidthLimit: 1 << 20}
	btrfs.IO = &report.IO{ReadIOPSLimit: 10, WriteBandwidthLimit: 1 << 16}
	disk := report.Disk{Path: "/dev/sdb", Model: "M", Serial: "S", Slot: "3"}
	group := report.Group{Name: "vg", UUID: testGroup, Size: 100, Free: 40, BlockedSeconds: 3, ExtentSize: 4,
		PVs:   []report.PV{{UUID: "a", Device: "/dev/sda", Extents: 10}, {UUID: "b", Extents: 5, Missing: true, Disk: &disk}},
		Pools: []report.Pool{{Name: "p", Size: 50, Used: 20, MetadataSize: 8, MetadataUsed: 2, Provisioned: 70, Extensions: 3}}}
	degraded := report.Condition{Type: string(lvm.ConditionVolumeDegraded), Group: "vg", Volume: testGroup + "/thin", Claim: "shop/thin"}
	n := report.Node{Cluster: "ours", Conditions: []report.Condition{degraded, degraded, {Type: string(lvm.ConditionDiskUnresponsive), Group: "vg"}},
		Comparison: &report.Comparison{Unreferenced: []report.Unreferenced{{Reason: report.ReasonAbandoned, Size: 7}, {Reason: report.ReasonAbandoned, Size: 2}}},
		Inventory: report.Inventory{
			Groups: []report.Group{group, group, {Name: "free", UUID: "f"}}, InFlight: 1, MetadataDifference: "seqno", WipeBacklog: 5,
			Volumes:   []report.Volume{thin, hung, btrfs, unclaimed, thin, entry("foreign", "theirs", ready), entry("old", "ours", string(lvm.StateDeleting))},
			Backlogs:  []report.Backlog{{Group: "vg", UUID: testGroup, Namespace: "shop", Volumes: 2, Bytes: 5, Held: 9}},
			LostDisks: []report.LostDisk{{PV: "c", Group: "old", GroupUUID: "o", Disk: disk}},
		}}
	want := `nodelvm_metadata_verified 0
nodelvm_operations_in_flight 1
nodelvm_orphaned_volume_bytes{reason="abandoned"} 9
nodelvm_orphaned_volume_bytes{reason="other-cluster"} 0
nodelvm_orphaned_volume_bytes{reason="unreferenced"} 0
nodelvm_orphaned_volumes{reason="abandoned"} 2
nodelvm_orphaned_volumes{reason="other-cluster"} 0
nodelvm_orphaned_volumes{reason="unreferenced"} 0
nodelvm_physical_volume_info{device="/dev/sda",model="",pv_uuid="a",serial="",slot="",vg="vg",GROUP} 1
nodelvm_physical_volume_info{device="/dev/sdb",model="M",pv_uuid="b",serial="S",slot="3",vg="vg",GROUP} 1
nodelvm_physical_volume_info{device="/dev/sdb",model="M",pv_uuid="c",serial="S",slot="3",vg="old",vg_uuid="o"} 1
nodelvm_physical_volume_missing{pv_uuid="a",vg="vg",GROUP} 0
nodelvm_physical_volume_missing{pv_uuid="b",vg="vg",GROUP} 1
nodelvm_physical_volume_missing{pv_uuid="c",vg="old",vg_uuid="o"} 1
nodelvm_physical_volume_size_bytes{pv_uuid="a",vg="vg",GROUP} 40
nodelvm_physical_volume_size_bytes{pv_uuid="b",vg="vg",GROUP} 20
nodelvm_physical_volume_size_bytes{pv_uuid="c",vg="old",vg_uuid="o"} 0
nodelvm_reading_age_seconds 7
nodelvm_thin_pool_extensions_total{thin_pool="p",vg="vg",GROUP} 3
nodelvm_thin_pool_metadata_size_bytes{thin_pool="p",vg="vg",GROUP} 8
nodelvm_thin_pool_metadata_used_bytes{thin_pool="p",vg="vg",GROUP} 2
nodelvm_thin_pool_provisioned_bytes{thin_pool="p",vg="vg",GROUP} 70
nodelvm_thin_pool_size_bytes{thin_pool="p",vg="vg",GROUP} 50
nodelvm_thin_pool_used_bytes{thin_pool="p",vg="vg",GROUP} 20
nodelvm_volume_allocated_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 300
nodelvm_volume_condition{claim="",condition="DiskUnresponsive",lv="",vg="vg"} 1
nodelvm_volume_condition{claim="shop/thin",condition="VolumeDegraded",lv="thin",vg="vg"} 1
nodelvm_volume_filesystem_available_bytes{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 800
nodelvm_volume_filesystem_available_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 450
nodelvm_volume_filesystem_inodes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 10
nodelvm_volume_filesystem_inodes_used{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 4
nodelvm_volume_filesystem_size_bytes{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 900
nodelvm_volume_filesystem_size_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 900
nodelvm_volume_filesystem_used_bytes{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 100
nodelvm_volume_filesystem_used_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 400
nodelvm_volume_group_blocked_seconds{vg="free",vg_uuid="f"} 0
nodelvm_volume_group_blocked_seconds{vg="vg",GROUP} 3
nodelvm_volume_group_free_bytes{vg="free",vg_uuid="f"} 0
nodelvm_volume_group_free_bytes{vg="vg",GROUP} 40
nodelvm_volume_group_size_bytes{vg="free",vg_uuid="f"} 0
nodelvm_volume_group_size_bytes{vg="vg",GROUP} 100
nodelvm_volume_group_volumes{vg="free",vg_uuid="f"} 0
nodelvm_volume_group_volumes{vg="vg",GROUP} 6
nodelvm_volume_group_wipe_backlog_bytes{claim_namespace="",vg="free",vg_uuid="f"} 0
nodelvm_volume_group_wipe_backlog_bytes{claim_namespace="shop",vg="vg",GROUP} 5
nodelvm_volume_group_wipe_backlog_volumes{claim_namespace="",vg="free",vg_uuid="f"} 0
nodelvm_volume_group_wipe_backlog_volumes{claim_namespace="shop",vg="vg",GROUP} 2
nodelvm_volume_read_bandwidth_limit_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 1.048576e+06
nodelvm_volume_read_bytes_total{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 0
nodelvm_volume_read_bytes_total{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 1500
nodelvm_volume_read_iops_limit{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 10
nodelvm_volume_read_time_seconds_total{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 0
nodelvm_volume_read_time_seconds_total{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 0.5
nodelvm_volume_reads_completed_total{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 0
nodelvm_volume_reads_completed_total{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 3
nodelvm_volume_size_bytes{claim="",claim_namespace="",lv="raw",vg="vg"} 1000
nodelvm_volume_size_bytes{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 1000
nodelvm_volume_size_bytes{claim="shop/hung",claim_namespace="shop",lv="hung",vg="vg"} 1000
nodelvm_volume_size_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 1000
nodelvm_volume_write_bandwidth_limit_bytes{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 65536
nodelvm_volume_write_iops_limit{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 100
nodelvm_volume_write_time_seconds_total{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 0
nodelvm_volume_write_time_seconds_total{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 2
nodelvm_volume_writes_completed_total{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 0
nodelvm_volume_writes_completed_total{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 4
nodelvm_volume_written_bytes_total{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 0
nodelvm_volume_written_bytes_total{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 2000
nodelvm_volumes{state="creating"} 0
nodelvm_volumes{state="deleting"} 1
nodelvm_volumes{state="ready"} 5
nodelvm_volumes{state="zeroing"} 0`
	want = strings.ReplaceAll(want, "GROUP}", `vg_uuid="`+testGroup+`"}`)
	registry := prometheus.NewRegistry()
	registry.MustRegister(nodeCollector{read: func() report.Node { return n }, log: slog.Default()})
	var got []string
	synctest.Test(t, func(t *testing.T) {
		n.Time = time.Now().Add(-7 * time.Second)
		got = seriesOf(t, registry)
	})
	if expected := strings.Split(want, "\n"); !slices.Equal(got, expected) {
		t.Errorf("the series differ (+: there are, -: there should be):\n%s", differences(got, expected))
	}
	for _, desc := range registeredBy(registry) { // a row that reads another fact than its own shows no value
		name, _, _ := strings.Cut(desc, " ")
		if !regexp.MustCompile("(?m)^"+name+`(\{.*\})? (0\.|[^0])`).MatchString(want) && name != "nodelvm_metadata_verified" {
			t.Errorf("give the document of this test a value for %s", name)
		}
	}
}

// seriesOf lists all series of a registry, sorted.
func seriesOf(t *testing.T, registry *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
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
	return lines
}

// TestUnknownMetrics: a scrape logs what cannot be read, and has the rest.
func TestUnknownMetrics(t *testing.T) {
	var text buffer
	log, err := logs.New(&text, "warn", "json")
	must(t, err)
	registry := prometheus.NewRegistry()
	registry.MustRegister(nodeCollector{read: (&readings{read: document{host: unreadableNode{}, health: sick{found: []lvm.Condition{{Type: lvm.ConditionVolumeGroupSetupFailed}}}.Health}.read}).get, log: log})
	expectMetric(t, registry, "nodelvm_volume_condition", map[string]string{"condition": "VolumeGroupSetupFailed", "vg": "", "lv": "", "claim": ""})
	if !strings.Contains(text.String(), report.UnknownGroups+"the disks hang") {
		t.Errorf("the log is %q", text.String())
	}
}
