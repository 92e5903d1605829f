//go:build e2e

package e2e

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// TestPlacement plays where volumes go: fresh capacity, a burst, power cuts, a reboot.
func TestPlacement(t *testing.T) { play(t, scenario.PlacementActs(seed(t))) }

// seed is what NODELVM_TEST_SEED says, or a new one, which the story tells.
func seed(t *testing.T) uint64 {
	if os.Getenv("NODELVM_TEST_SEED") == "" {
		return rand.Uint64N(1 << 32)
	}
	return uint64(number(t, "NODELVM_TEST_SEED", 0))
}

// number reads a setting.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		t.Fatalf("%s=%s: want a whole number", name, text)
	}
	return n
}
