//go:build e2e

package e2e

import (
	"testing"

	"github.com/nodelvm/nodelvm/test/scenario/capacity"
)

// TestBurst starts 60 pods at once: without volumes, with volumes, and on nodes with capacity for no more.
func TestBurst(t *testing.T) { play(t, capacity.Burst()) }
