package measure

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestSteadyPairs: a move counts if the raw copies before and after it took about as long.
func TestSteadyPairs(t *testing.T) {
	for what, c := range map[string]struct {
		raws, moves []float64
		want        []ratePair
	}{
		"all are steady":        {[]float64{4, 4, 5}, []float64{5, 6}, []ratePair{{4, 5}, {4.5, 6}}},
		"the one after is slow": {[]float64{4, 5.1, 5}, []float64{5, 6}, []ratePair{{5.05, 6}}},
		"the one after is fast": {[]float64{5.1, 4}, []float64{5}, nil},
		"none after it yet":     {[]float64{4}, nil, nil},
	} {
		if got := steadyPairs(c.raws, c.moves); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}

// TestJudgeRates: the median decides, and is printed.
func TestJudgeRates(t *testing.T) {
	var said string
	note := func(format string, args ...any) { said = fmt.Sprintf(format, args...) }
	slow, fast := ratePair{raw: 4, move: 8}, ratePair{raw: 4, move: 4}
	if err := judgeRates(note, []ratePair{slow, fast, fast}); err != nil || !strings.Contains(said, "raw 128 MiB/s, the move 128 MiB/s, ratio 1.00") {
		t.Errorf("two fast moves and a slow one: %v, %q", err, said)
	}
	if err := judgeRates(note, []ratePair{slow, fast, slow}); err == nil || !strings.Contains(said, "ratio 0.50") {
		t.Errorf("two slow moves and a fast one: %v, %q", err, said)
	}
}
