package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm"
)

// findings returns the conditions of this node's volumes and groups.
type findings func(context.Context) ([]lvm.Condition, error)

// healthOf combines several parts. It returns the findings of each, even if another one fails.
func healthOf(parts ...interface {
	Health(context.Context) ([]lvm.Condition, error)
}) findings {
	return func(ctx context.Context) ([]lvm.Condition, error) {
		var all []lvm.Condition
		var errs []error
		for _, part := range parts {
			found, err := part.Health(ctx)
			all, errs = append(all, found...), append(errs, err)
		}
		return all, errors.Join(errs...)
	}
}

var volumeCondition = prometheus.NewDesc("nodelvm_volume_condition", "1 for each condition of a volume, or of a volume group if lv is empty.",
	[]string{"condition", "vg", "lv", "claim"}, nil)

// healthCollector checks the health only during a scrape.
type healthCollector struct {
	read findings
	log  *slog.Logger
}

func (c healthCollector) Describe(descs chan<- *prometheus.Desc) { descs <- volumeCondition }

func (c healthCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	found, err := c.read(ctx)
	if err != nil {
		c.log.WarnContext(ctx, "cannot check all volumes and groups of this node", "error", err)
	}
	told := map[[4]string]bool{}
	for _, f := range found {
		labels := [4]string{string(f.Type), string(f.Group), f.Volume.ID.LV, f.Volume.Claim}
		if !told[labels] { // a series must be unique
			told[labels] = true
			out <- prometheus.MustNewConstMetric(volumeCondition, prometheus.GaugeValue, 1, labels[:]...)
		}
	}
}
