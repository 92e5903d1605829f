package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// fixedInventory is a node's host with this inventory.
type fixedInventory struct{ inv report.Inventory }

func (h fixedInventory) Inventory(context.Context) (report.Inventory, error) { return h.inv, nil }

func (fixedInventory) CapacityByGroup(context.Context, lvm.Class) ([]report.Offer, error) {
	return nil, nil
}

const testGroup = "AAAAAA-0000-0000-0000-0000-0000-000001"

func entry(lv, cluster, state string) report.Volume {
	return report.Volume{ID: testGroup + "/" + lv, Group: "vg", LV: lv, Name: lv, Claim: "shop/" + lv, Cluster: cluster, State: state, Size: 1000}
}

// TestVolumeMetrics: each ready volume of this cluster has its size, its allocation if it is thin, and its file system if that
// answers.
func TestVolumeMetrics(t *testing.T) {
	ready, used := string(lvm.StateReady), lvm.Bytes(300)
	thin := entry("thin", "ours", ready)
	thin.Used = &used
	unclaimed := entry("raw", "ours", ready)
	unclaimed.Claim = ""
	host := fixedInventory{report.Inventory{Volumes: []report.Volume{thin, entry("hung", "ours", ready), entry("btrfs", "ours", ready), unclaimed,
		entry("thin", "ours", ready), entry("foreign", "theirs", ready), entry("old", "ours", string(lvm.StateDeleting))}}}
	id := func(lv string) lvm.ID { return lvm.ID{VG: testGroup, LV: lv} }
	details := volumeDetails{fileSystems: func(context.Context) (map[lvm.ID]report.FileSystem, error) {
		return map[lvm.ID]report.FileSystem{
			id("thin"):  {Type: "xfs", Size: 900, Used: 400, Available: 450, Inodes: 10, InodesUsed: 4, InodesFree: 6},
			id("btrfs"): {Type: "btrfs", Size: 900, Used: 100, Available: 800},
			id("hung"):  {Type: "xfs", Error: "has not answered"},
		}, nil
	}}
	want := `nodelvm_volume_allocated_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 300
nodelvm_volume_filesystem_available_bytes{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 800
nodelvm_volume_filesystem_available_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 450
nodelvm_volume_filesystem_inodes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 10
nodelvm_volume_filesystem_inodes_used{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 4
nodelvm_volume_filesystem_size_bytes{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 900
nodelvm_volume_filesystem_size_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 900
nodelvm_volume_filesystem_used_bytes{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 100
nodelvm_volume_filesystem_used_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 400
nodelvm_volume_size_bytes{claim="",claim_namespace="",lv="raw",vg="vg"} 1000
nodelvm_volume_size_bytes{claim="shop/btrfs",claim_namespace="shop",lv="btrfs",vg="vg"} 1000
nodelvm_volume_size_bytes{claim="shop/hung",claim_namespace="shop",lv="hung",vg="vg"} 1000
nodelvm_volume_size_bytes{claim="shop/thin",claim_namespace="shop",lv="thin",vg="vg"} 1000`
	registry := prometheus.NewRegistry()
	registry.MustRegister(inventoryCollector{cluster: "ours", host: host, details: details, log: slog.Default()})
	if text := seriesOf(t, registry); text != want {
		t.Errorf("metrics:\n%s\nwant:\n%s", text, want)
	}
}

// TestVolumeDetails: the document has each volume's file system, and the class of the claim that is bound to it.
func TestVolumeDetails(t *testing.T) {
	inv := report.Inventory{Volumes: []report.Volume{entry("a", "ours", "ready"), entry("b", "ours", "ready")}}
	details := volumeDetails{
		fileSystems: func(context.Context) (map[lvm.ID]report.FileSystem, error) {
			return map[lvm.ID]report.FileSystem{{VG: testGroup, LV: "a"}: {Size: 7}, {VG: testGroup, LV: "gone"}: {Size: 8}}, nil
		},
		class: func(volume string) string { return map[string]string{"b": "fast"}[volume] },
	}
	if err := details.addTo(t.Context(), &inv); err != nil {
		t.Fatal(err)
	}
	if a, b := inv.Volumes[0], inv.Volumes[1]; a.FileSystem == nil || a.FileSystem.Size != 7 || a.Class != "" || b.FileSystem != nil || b.Class != "fast" {
		t.Errorf("got %+v", inv.Volumes)
	}
}
