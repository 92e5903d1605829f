package main

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/report"
)

// newCommandMetrics returns an observer of LVM commands.
func newCommandMetrics(registry prometheus.Registerer) func(lvm.Command) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nodelvm_lvm_command_duration_seconds",
		Help:    "Duration of LVM commands, by name and exit code. -1: the command did not start, or a signal ended it.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	}, []string{"command", "exit_code"})
	registry.MustRegister(seconds)
	return func(c lvm.Command) {
		seconds.WithLabelValues(c.Name, strconv.Itoa(c.ExitCode)).Observe(c.Duration.Seconds())
	}
}

var (
	groupSize        = groupDesc("size_bytes", "Size of the volume group, without missing physical volumes.")
	groupFree        = groupDesc("free_bytes", "Free space in the volume group.")
	groupVolumes     = groupDesc("volumes", "Number of volumes of this cluster in the volume group.")
	groupHung        = groupDesc("blocked_seconds", "Time for which an LVM command in the volume group has been running beyond its time limit. 0 if none is.")
	poolSize         = poolDesc("size_bytes", "Size of the thin pool's data.")
	poolUsed         = poolDesc("used_bytes", "Allocated data of the thin pool. 0 while the pool is inactive.")
	poolMetadataSize = poolDesc("metadata_size_bytes", "Size of the thin pool's metadata.")
	poolMetadataUsed = poolDesc("metadata_used_bytes", "Used metadata of the thin pool. 0 while the pool is inactive.")
	poolPromised     = poolDesc("provisioned_bytes", "Sum of the virtual sizes of the volumes and snapshots in the thin pool.")
	poolGrown        = poolDesc("extensions_total", "Number of times that the driver has extended the thin pool because it filled up.")
	directReader     = prometheus.NewDesc("nodelvm_direct_metadata_read_enabled", "1 if the driver reads LVM metadata directly from the disks. 0 if it runs LVM instead, because a direct read differed from LVM's report.", nil, nil)

	volumeCount = prometheus.NewDesc("nodelvm_volumes", "Number of volumes of this cluster on this node, by state.", []string{"state"}, nil)
	wipeBacklog = groupDesc("wipe_backlog_bytes", "Bytes of deleted volumes that are still to be wiped, by the namespace of their claims.", "claim_namespace")
	wipeVolumes = groupDesc("wipe_backlog_volumes", "Number of deleted volumes that are still to be wiped, by the namespace of their claims.", "claim_namespace")
	inFlight    = prometheus.NewDesc("nodelvm_operations_in_flight", "Number of operations on volumes and snapshots that are running.", nil, nil)
)

func groupDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("nodelvm_volume_group_"+name, help, append([]string{"vg", "vg_uuid"}, labels...), nil)
}

func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("nodelvm_thin_pool_"+name, help, []string{"vg", "vg_uuid", "thin_pool"}, nil)
}

// lvmCollector reads the metrics of the LVM host only during a scrape.
type lvmCollector struct {
	read func() host.Metrics
}

func (c lvmCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		groupSize, groupFree, groupVolumes, groupHung, poolSize, poolUsed, poolMetadataSize, poolMetadataUsed, poolPromised, poolGrown,
		volumeCount, wipeBacklog, wipeVolumes, inFlight, directReader,
	} {
		descs <- desc
	}
}

// backlogsOf returns the backlogs, and an empty one for each group without one: alerts on a constant backlog need the zeroes.
func backlogsOf(m host.Metrics) []report.Backlog {
	all := slices.Clone(m.Backlogs)
	for _, g := range m.Groups {
		if !slices.ContainsFunc(all, func(b report.Backlog) bool { return b.UUID == g.UUID }) {
			all = append(all, report.Backlog{Group: g.Name, UUID: g.UUID})
		}
	}
	return all
}

func (c lvmCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	m := c.read()
	for _, group := range m.Groups {
		gauge(groupSize, float64(group.Size), string(group.Name), string(group.UUID))
		gauge(groupFree, float64(group.Free), string(group.Name), string(group.UUID))
		gauge(groupVolumes, float64(group.Volumes), string(group.Name), string(group.UUID))
		gauge(groupHung, group.Hung.Seconds(), string(group.Name), string(group.UUID))
		for _, pool := range group.Pools {
			labels := []string{string(group.Name), string(group.UUID), pool.Name}
			gauge(poolSize, float64(pool.Size), labels...)
			gauge(poolUsed, float64(pool.Used), labels...)
			gauge(poolMetadataSize, float64(pool.MetadataSize), labels...)
			gauge(poolMetadataUsed, float64(pool.MetadataUsed), labels...)
			gauge(poolPromised, float64(pool.Promised), labels...)
			out <- prometheus.MustNewConstMetric(poolGrown, prometheus.CounterValue, float64(pool.Grown), labels...)
		}
	}
	for _, state := range []lvm.VolumeState{lvm.StateCreating, lvm.StateZeroing, lvm.StateReady, lvm.StateDeleting} {
		gauge(volumeCount, float64(m.Volumes[state]), string(state))
	}
	for _, b := range backlogsOf(m) {
		gauge(wipeBacklog, float64(b.Bytes), string(b.Group), string(b.UUID), b.Namespace)
		gauge(wipeVolumes, float64(b.Volumes), string(b.Group), string(b.UUID), b.Namespace)
	}
	gauge(inFlight, float64(m.InFlight))
	direct := 1.0
	if m.ReaderOff {
		direct = 0
	}
	gauge(directReader, direct)
}
