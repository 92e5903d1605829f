package main

import (
	"math"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metric is one metric of each T.
type metric[T any] struct {
	name, help string
	value      func(T) float64 // absent: this T has no such series
	kind       prometheus.ValueType
}

// absent is the value of a series that does not exist.
var absent = math.NaN()

func gauge[T any](name, help string, value func(T) float64) metric[T] {
	return metric[T]{name, help, value, prometheus.GaugeValue}
}

func counter[T any](name, help string, value func(T) float64) metric[T] {
	return metric[T]{name, help, value, prometheus.CounterValue}
}

// size converts a value without a fraction.
func size[N ~int | ~int64](value N) float64 { return float64(value) }

// truth converts a yes to 1.
func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// family are metrics of each T with the same labels.
type family[T any] struct {
	metrics []metric[T]
	descs   []*prometheus.Desc
	values  func(T) []string // of the labels
}

func newFamily[T any](prefix string, labels []string, values func(T) []string, metrics ...metric[T]) family[T] {
	f := family[T]{metrics: metrics, values: values}
	for _, m := range metrics {
		f.descs = append(f.descs, prometheus.NewDesc("nodelvm_"+prefix+m.name, m.help, labels, nil))
	}
	return f
}

func (f family[T]) describe(out chan<- *prometheus.Desc) {
	for _, desc := range f.descs {
		out <- desc
	}
}

// collect sends the series of the items. A series must be unique: of items with the same labels the first counts.
func (f family[T]) collect(out chan<- prometheus.Metric, items []T) {
	seen := make(map[string]bool, len(items))
	for _, item := range items {
		labels := f.values(item)
		key := strings.Join(labels, "\x00")
		if seen[key] {
			continue
		}
		seen[key] = true
		pairs := prometheus.MakeLabelPairs(f.descs[0], labels)
		for i, m := range f.metrics {
			if value := m.value(item); !math.IsNaN(value) {
				out <- sample{f.descs[i], m.kind, value, pairs}
			}
		}
	}
}

// sample is one series. Those of an item share their labels, which prometheus.NewConstMetric would sort and copy for each.
type sample struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  float64
	labels []*dto.LabelPair
}

func (s sample) Desc() *prometheus.Desc { return s.desc }

func (s sample) Write(to *dto.Metric) error {
	to.Label = s.labels
	if s.kind == prometheus.CounterValue {
		to.Counter = &dto.Counter{Value: &s.value}
	} else {
		to.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}
