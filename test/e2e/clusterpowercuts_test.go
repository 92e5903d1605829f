//go:build e2e

package e2e

import (
	"testing"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// TestClusterPowerCuts cuts the power of a cluster's node many times (NODELVM_TEST_CLUSTER_CUTS: 50), under a database's load and
// while volumes come and go. TestPlacement does the same 3 times.
func TestClusterPowerCuts(t *testing.T) {
	play(t, scenario.PowerCuts(number(t, "NODELVM_TEST_CLUSTER_CUTS", 50), seed(t)))
}
