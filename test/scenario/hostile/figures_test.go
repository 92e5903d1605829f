package hostile

import (
	"testing"
	"time"
)

// TestMedian: of an even number of rounds it is between the two in the middle.
func TestMedian(t *testing.T) {
	rounds := func(seconds ...int) (all []round) {
		for _, s := range seconds {
			all = append(all, round{whole: time.Duration(s) * time.Second})
		}
		return all
	}
	for _, c := range []struct {
		of   []round
		want time.Duration
	}{{nil, 0}, {rounds(7), 7 * time.Second}, {rounds(9, 1, 4), 4 * time.Second}, {rounds(9, 1, 4, 2), 3 * time.Second}} {
		if is := medianOf(c.of, whole); is != c.want {
			t.Errorf("the median of %v is %s, want %s", c.of, is, c.want)
		}
	}
}

// TestCheck: too much memory on one node, and a node that was hardly read, fail.
func TestCheck(t *testing.T) {
	nodes := []string{"a", "b"}
	read := func(b, kib int) *memory {
		m := newMemory()
		m.reads = map[string]int{"a": 60, "b": b}
		m.peaks[processes[0]] = map[string]int{"a": 30 << 10, "b": kib}
		return m
	}
	for _, c := range []struct {
		m     *memory
		fails bool
	}{{read(60, mostMemory), false}, {read(60, mostMemory+1), true}, {read(2, 30<<10), true}} {
		if err := c.m.check(nodes, 5*time.Minute); (err != nil) != c.fails {
			t.Errorf("%+v: %v", c.m, err)
		}
	}
}
