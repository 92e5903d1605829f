package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/trim"
)

// startTrim trims the file systems that opt in until ctx ends; without an agent it cannot read their annotations.
func startTrim(ctx context.Context, parts *errgroup.Group, node trim.Node, agent *kube.Agent, observe func(lvm.Bytes, time.Duration, error), log *slog.Logger) {
	if agent == nil {
		return
	}
	trimmer := trim.New(trim.Config{Node: node, Interval: agent.TrimInterval, Failed: agent.ReportTrimFailed, Done: observe, Log: log})
	parts.Go(func() error {
		trimmer.Run(ctx)
		return nil
	})
}

// newTrimMetrics returns an observer of trims.
func newTrimMetrics(registry prometheus.Registerer) func(lvm.Bytes, time.Duration, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "nodelvm_trim_duration_seconds", Help: "Duration of trims of file systems, by result: success or failure.", Buckets: []float64{.1, 1, 10, 60, 300, 900, 1800},
	}, []string{"result"})
	bytes := prometheus.NewCounter(prometheus.CounterOpts{Name: "nodelvm_trimmed_bytes_total", Help: "Bytes that the file systems have discarded in trims."})
	registry.MustRegister(seconds, bytes)
	for _, result := range []string{"success", "failure"} {
		seconds.WithLabelValues(result)
	}
	return func(trimmed lvm.Bytes, took time.Duration, err error) {
		result := "success"
		if err != nil {
			result = "failure"
		}
		seconds.WithLabelValues(result).Observe(took.Seconds())
		bytes.Add(float64(trimmed))
	}
}
