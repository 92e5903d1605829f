package main

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm"
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

// newStallMetric returns an observer of the time for which group snapshots suspend volumes; nil without group snapshots.
func newStallMetric(registry prometheus.Registerer, groupSnapshots bool) func(time.Duration) {
	if !groupSnapshots {
		return nil
	}
	seconds := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "nodelvm_group_snapshot_stall_seconds",
		Help:    "Time for which a group snapshot suspended its volumes, from the first one suspended to the last one resumed. The driver resumes them after 5 s.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	registry.MustRegister(seconds)
	return func(stall time.Duration) { seconds.Observe(stall.Seconds()) }
}
