package alerts

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// This file is what Prometheus' query engine needs of a database: series in memory.

// load reads series in promtool's notation, a line each, a value a minute.
func load(t *testing.T, lines string) storage.Queryable {
	t.Helper()
	var all []*storage.SeriesEntry
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		name, values, err := language.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var samples []chunks.Sample
		for minute, v := range values {
			if !v.Omitted {
				samples = append(samples, point{int64(minute) * 60_000, v.Value})
			}
		}
		all = append(all, storage.NewListSeries(name, samples))
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			found := &set{}
			for _, s := range all {
				differs := func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) }
				if !slices.ContainsFunc(matchers, differs) {
					found.left = append(found.left, s)
				}
			}
			return found
		},
	}}
}

// set goes through series.
type set struct {
	now  storage.Series
	left []storage.Series
}

func (s *set) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.now, s.left = s.left[0], s.left[1:]
	return true
}

func (s *set) At() storage.Series              { return s.now }
func (*set) Err() error                        { return nil }
func (*set) Warnings() annotations.Annotations { return nil }

// point is one value at one time, in milliseconds.
type point struct {
	at    int64
	value float64
}

func (p point) T() int64                    { return p.at }
func (point) ST() int64                     { return 0 }
func (p point) F() float64                  { return p.value }
func (point) H() *histogram.Histogram       { return nil }
func (point) FH() *histogram.FloatHistogram { return nil }
func (point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample         { return p }
