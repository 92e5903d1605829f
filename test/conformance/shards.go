package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// shardSize bounds the specs of a shard: what a cut-off run loses is the work of one shard.
const shardSize = 5

// shard is a few specs of one class and one part of the suite, run by one process.
type shard struct {
	name   string // unique among the shards of a run; names the log
	specs  []Spec // of one class
	serial bool   // nothing else may run beside it
}

// makeShards cuts specs into shards, those that must run alone last.
func makeShards(specs []Spec) []shard {
	var shards []shard
	open := map[string]int{} // class and group -> index of the shard that is being filled
	count := map[string]int{}
	for _, s := range specs {
		serial := strings.Contains(s.Text, "[Serial]")
		key := s.Class + "-" + s.Group()
		if serial {
			key += "-serial"
		}
		at, found := open[key]
		if !found || len(shards[at].specs) == shardSize {
			count[key]++
			at = len(shards)
			open[key] = at
			shards = append(shards, shard{name: fmt.Sprintf("%s-%d", key, count[key]), serial: serial})
		}
		shards[at].specs = append(shards[at].specs, s)
	}
	slices.SortStableFunc(shards, func(a, b shard) int {
		switch {
		case a.serial == b.serial:
			return 0
		case b.serial:
			return -1
		}
		return 1
	})
	return shards
}

func (s shard) class() string { return s.specs[0].Class }

// focus is the regular expression that ginkgo finds exactly the shard's specs by: it matches the end of their text.
func (s shard) focus() string {
	texts := make([]string, len(s.specs))
	for i, spec := range s.specs {
		texts[i] = regexp.QuoteMeta(spec.Text)
	}
	return "(" + strings.Join(texts, "|") + ")$"
}
