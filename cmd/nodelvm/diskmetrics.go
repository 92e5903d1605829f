package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

var (
	pvInfo    = pvDesc("info", "1 for each physical volume, with the disk that it is or was on.", "device", "model", "serial", "slot")
	pvSize    = pvDesc("size_bytes", "Size of the physical volume. 0 if it is unknown because its whole volume group is lost.")
	pvMissing = pvDesc("missing", "1 if the physical volume is missing or unresponsive.")
)

func pvDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("nodelvm_physical_volume_"+name, help, append([]string{"vg", "vg_uuid", "pv_uuid"}, labels...), nil)
}

// collectDisks reports the disks of all groups, and the lost disks of lost groups.
func collectDisks(out chan<- prometheus.Metric, inv report.Inventory) {
	seen := map[string]bool{} // a duplicate group has the same physical volumes, and a series must be unique
	tell := func(vg lvm.VGName, vgUUID lvm.VGUUID, uuid string, disk report.Disk, size lvm.Bytes, missing bool) {
		if seen[uuid] {
			return
		}
		seen[uuid] = true
		labels := []string{string(vg), string(vgUUID), uuid}
		gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
		}
		gauge(pvInfo, 1, append(labels, disk.Path, disk.Model, disk.Serial, disk.Slot)...)
		gauge(pvSize, float64(size), labels...)
		value := 0.0
		if missing {
			value = 1
		}
		gauge(pvMissing, value, labels...)
	}
	for _, g := range inv.Groups {
		for _, pv := range g.PVs {
			disk := report.Disk{Path: pv.Device}
			if pv.Disk != nil {
				disk = *pv.Disk
			}
			tell(g.Name, g.UUID, pv.UUID, disk, lvm.Bytes(pv.Extents)*g.ExtentSize, pv.Missing || pv.Unresponsive)
		}
	}
	for _, d := range inv.LostDisks {
		tell(d.Group, d.GroupUUID, d.PV, d.Disk, 0, true)
	}
}
