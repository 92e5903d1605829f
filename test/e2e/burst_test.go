//go:build e2e

package e2e

import (
	"testing"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// TestBurst starts 60 pods at once, without volumes, with them, and where there is room for no more.
func TestBurst(t *testing.T) { play(t, scenario.Burst()) }
