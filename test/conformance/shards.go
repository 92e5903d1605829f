package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// shardSize limits the specs of a shard: an interrupted run loses only the results of its running shards.
const shardSize = 5

// shard is a few specs of one class and one part of the suite; one process runs them.
type shard struct {
	name   string // unique among the shards of a run; names the log
	specs  []Spec // of one class
	serial bool   // no other shard may run meanwhile
}

// makeShards splits specs into shards; those that must run alone are last.
func makeShards(specs []Spec) []shard {
	var shards []shard
	open := map[string]int{} // class and group -> index of the shard that gets the next spec
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

// focus returns the regular expression that selects exactly the shard's specs: it matches the end of their text.
func (s shard) focus() string {
	texts := make([]string, len(s.specs))
	for i, spec := range s.specs {
		texts[i] = regexp.QuoteMeta(spec.Text)
	}
	return "(" + strings.Join(texts, "|") + ")$"
}
