package main

import (
	"strconv"

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
