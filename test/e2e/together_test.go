//go:build e2e

package e2e

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// TestPairs starts 30 pods with two claims each on nodes that only some pairs fit on, NODELVM_TEST_PAIRS_RUNS times.
func TestPairs(t *testing.T) {
	runs, seed := 1, rand.Uint64N(1<<32)
	if text := os.Getenv("NODELVM_TEST_PAIRS_RUNS"); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil || runs < 1 {
			t.Fatalf("NODELVM_TEST_PAIRS_RUNS=%s: want a number of runs", text)
		}
	}
	if text := os.Getenv("NODELVM_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("NODELVM_TEST_SEED=%s: want a number", text)
		}
	}
	play(t, scenario.PairsActs(runs, seed))
}

// TestTogether plays how the volumes of one pod are placed.
func TestTogether(t *testing.T) { play(t, scenario.TogetherActs()) }
