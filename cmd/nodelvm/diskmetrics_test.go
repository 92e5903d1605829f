package main

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/report"
)

// TestDiskMetrics: present, missing and lost disks have their series, once.
func TestDiskMetrics(t *testing.T) {
	disk := &report.Disk{Path: "/dev/sdb", Model: "M", Serial: "S", Slot: "3"}
	group := report.Group{Name: "vg", UUID: "u", ExtentSize: 4, PVs: []report.PV{{UUID: "a", Device: "/dev/sda", Extents: 10}, {UUID: "b", Extents: 5, Missing: true, Disk: disk}}}
	host := fixedInventory{report.Inventory{Groups: []report.Group{group, group}, LostDisks: []report.LostDisk{{PV: "c", Group: "old", GroupUUID: "o", Disk: *disk}}}}
	want := `nodelvm_physical_volume_info{device="/dev/sda",model="",pv_uuid="a",serial="",slot="",vg="vg",vg_uuid="u"} 1
nodelvm_physical_volume_info{device="/dev/sdb",model="M",pv_uuid="b",serial="S",slot="3",vg="vg",vg_uuid="u"} 1
nodelvm_physical_volume_info{device="/dev/sdb",model="M",pv_uuid="c",serial="S",slot="3",vg="old",vg_uuid="o"} 1
nodelvm_physical_volume_missing{pv_uuid="a",vg="vg",vg_uuid="u"} 0
nodelvm_physical_volume_missing{pv_uuid="b",vg="vg",vg_uuid="u"} 1
nodelvm_physical_volume_missing{pv_uuid="c",vg="old",vg_uuid="o"} 1
nodelvm_physical_volume_size_bytes{pv_uuid="a",vg="vg",vg_uuid="u"} 40
nodelvm_physical_volume_size_bytes{pv_uuid="b",vg="vg",vg_uuid="u"} 20
nodelvm_physical_volume_size_bytes{pv_uuid="c",vg="old",vg_uuid="o"} 0`
	registry := prometheus.NewRegistry()
	registry.MustRegister(inventoryCollector{host: host, log: slog.Default()})
	if text := seriesOf(t, registry); text != want {
		t.Errorf("metrics:\n%s\nwant:\n%s", text, want)
	}
}
