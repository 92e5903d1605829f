package main

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/inventory"
)

// newCommandMetrics returns an observer of LVM's processes.
func newCommandMetrics(registry prometheus.Registerer) func(lvm.Command) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nodelvm_lvm_command_seconds",
		Help:    "Duration of LVM commands by name and exit code (-1: did not start, or died of a signal).",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	}, []string{"command", "exit_code"})
	registry.MustRegister(seconds)
	return func(c lvm.Command) {
		seconds.WithLabelValues(c.Name, strconv.Itoa(c.ExitCode)).Observe(c.Duration.Seconds())
	}
}

var (
	groupSize        = prometheus.NewDesc("nodelvm_volume_group_size_bytes", "Size of a volume group.", []string{"group", "uuid"}, nil)
	groupFree        = prometheus.NewDesc("nodelvm_volume_group_free_bytes", "Free space of a volume group.", []string{"group", "uuid"}, nil)
	groupVolumes     = prometheus.NewDesc("nodelvm_volume_group_volumes", "Volumes of this cluster in a volume group.", []string{"group", "uuid"}, nil)
	groupHung        = prometheus.NewDesc("nodelvm_volume_group_hung_seconds", "For how long an LVM command in a volume group has not ended that should have.", []string{"group", "uuid"}, nil)
	poolSize         = poolDesc("size_bytes", "Size of a thin pool's data.")
	poolUsed         = poolDesc("used_bytes", "Of a thin pool's data, what holds blocks.")
	poolMetadataSize = poolDesc("metadata_size_bytes", "Size of a thin pool's metadata.")
	poolMetadataUsed = poolDesc("metadata_used_bytes", "Of a thin pool's metadata, what is in use.")
	poolPromised     = poolDesc("promised_bytes", "What the volumes and snapshots of a thin pool would hold if they were full.")
	poolGrown        = poolDesc("extensions_total", "How often a thin pool was enlarged because it filled up, since the driver started.")
	directReader     = prometheus.NewDesc("nodelvm_direct_reader", "1 while the volume groups are read straight from the disks; 0 once that differed from LVM's report, which costs a process each time.", nil, nil)

	volumeCount = prometheus.NewDesc("nodelvm_volumes", "Volumes of this cluster on this node by state.", []string{"state"}, nil)
	wipeBacklog = prometheus.NewDesc("nodelvm_wipe_backlog_bytes", "What is still to be wiped of the deleted volumes of a namespace.", []string{"group", "uuid", "namespace"}, nil)
	wipeVolumes = prometheus.NewDesc("nodelvm_wipe_backlog_volumes", "Deleted volumes of a namespace that hold their space still.", []string{"group", "uuid", "namespace"}, nil)
	inFlight    = prometheus.NewDesc("nodelvm_operations_in_flight", "Operations under way.", nil, nil)
)

func poolDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("nodelvm_thin_pool_"+name, help, []string{"group", "uuid", "pool"}, nil)
}

// lvmCollector reads the LVM host's figures when it is scraped, and never between.
type lvmCollector struct {
	read func() lvm.Metrics
}

func (c lvmCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		groupSize, groupFree, groupVolumes, groupHung, poolSize, poolUsed, poolMetadataSize, poolMetadataUsed, poolPromised, poolGrown,
		volumeCount, wipeBacklog, wipeVolumes, inFlight, directReader,
	} {
		descs <- desc
	}
}

// backlogsOf are the backlogs, and an empty one for each group that has none: who looks for one that does not shrink needs
// the zeroes between.
func backlogsOf(m lvm.Metrics) []inventory.Backlog {
	all := slices.Clone(m.Backlogs)
	for _, g := range m.Groups {
		if !slices.ContainsFunc(all, func(b inventory.Backlog) bool { return b.UUID == g.UUID }) {
			all = append(all, inventory.Backlog{Group: g.Name, UUID: g.UUID})
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
		gauge(groupSize, float64(group.Size), group.Name, group.UUID)
		gauge(groupFree, float64(group.Free), group.Name, group.UUID)
		gauge(groupVolumes, float64(group.Volumes), group.Name, group.UUID)
		gauge(groupHung, group.Hung.Seconds(), group.Name, group.UUID)
		for _, pool := range group.Pools {
			labels := []string{group.Name, group.UUID, pool.Name}
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
		gauge(wipeBacklog, float64(b.Bytes), b.Group, b.UUID, b.Namespace)
		gauge(wipeVolumes, float64(b.Volumes), b.Group, b.UUID, b.Namespace)
	}
	gauge(inFlight, float64(m.InFlight))
	direct := 1.0
	if m.ReaderOff {
		direct = 0
	}
	gauge(directReader, direct)
}
