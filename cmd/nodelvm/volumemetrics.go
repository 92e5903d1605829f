package main

import (
	"context"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

var (
	volumeSize       = volumeDesc("size_bytes", "Size of the volume.")
	volumeAllocated  = volumeDesc("allocated_bytes", "Allocated data of the thin volume in its pool, including blocks that it shares with snapshots.")
	fileSystemSize   = volumeDesc("filesystem_size_bytes", "Size of the volume's mounted file system.")
	fileSystemUsed   = volumeDesc("filesystem_used_bytes", "Used space of the volume's mounted file system.")
	fileSystemFree   = volumeDesc("filesystem_available_bytes", "Space of the volume's mounted file system that users other than root can still use.")
	fileSystemInodes = volumeDesc("filesystem_inodes", "Number of inodes of the volume's mounted file system. Absent if it has no limit.")
	fileSystemINUsed = volumeDesc("filesystem_inodes_used", "Number of used inodes of the volume's mounted file system. Absent if it has no limit.")
)

func volumeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("nodelvm_volume_"+name, help, []string{"vg", "lv", "claim", "claim_namespace"}, nil)
}

// inventoryCollector reads the volumes of this cluster and the physical volumes only during a scrape. A volume has at most
// seven series, a physical volume three.
type inventoryCollector struct {
	cluster string
	host    statusHost
	details volumeDetails
	log     *slog.Logger
}

func (c inventoryCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{volumeSize, volumeAllocated, fileSystemSize, fileSystemUsed, fileSystemFree, fileSystemInodes, fileSystemINUsed,
		pvInfo, pvSize, pvMissing} {
		descs <- desc
	}
}

func (c inventoryCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	inv, err := c.host.Inventory(ctx)
	if err == nil {
		err = c.details.addTo(ctx, &inv)
	}
	if err != nil {
		c.log.WarnContext(ctx, "cannot read the metrics of all volumes and disks", "error", err)
	}
	collectDisks(out, inv)
	told := map[[2]string]bool{}
	for _, v := range inv.Volumes {
		// Two groups can have the same name, and a series must be unique.
		if key := [2]string{string(v.Group), v.LV}; v.Cluster == c.cluster && v.State == string(lvm.StateReady) && !told[key] {
			told[key] = true
			collectVolume(out, v)
		}
	}
}

func collectVolume(out chan<- prometheus.Metric, v report.Volume) {
	namespace, _, _ := strings.Cut(v.Claim, "/")
	gauge := func(desc *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, string(v.Group), v.LV, v.Claim, namespace)
	}
	gauge(volumeSize, float64(v.Size))
	if v.Used != nil {
		gauge(volumeAllocated, float64(*v.Used))
	}
	f := v.FileSystem
	if f == nil || f.Error != "" {
		return
	}
	gauge(fileSystemSize, float64(f.Size))
	gauge(fileSystemUsed, float64(f.Used))
	gauge(fileSystemFree, float64(f.Available))
	if f.Inodes > 0 {
		gauge(fileSystemInodes, float64(f.Inodes))
		gauge(fileSystemINUsed, float64(f.InodesUsed))
	}
}
