//go:build e2e

package e2e

import (
	"testing"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// TestPairs starts 30 pods with two claims each on nodes that only some pairs fit on, NODELVM_TEST_PAIRS_RUNS times.
func TestPairs(t *testing.T) {
	play(t, scenario.PodPairs(number(t, "NODELVM_TEST_PAIRS_RUNS", 1), seed(t)))
}

// TestTogether runs how the volumes of one pod are placed.
func TestTogether(t *testing.T) { play(t, scenario.PodsWithSeveralClaims()) }
