//go:build e2e

package e2e

import (
	"testing"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// TestHelm plays how the chart is installed, updated under load, taken away and installed again.
func TestHelm(t *testing.T) { play(t, scenario.HelmActs()) }
