//go:build e2e

package e2e

import (
	"testing"

	"github.com/nodelvm/nodelvm/test/scenario/restart"
)

// TestClusterPowerCuts cuts the power of a cluster's node NODELVM_TEST_CLUSTER_CUTS times (50 by default), under a database's load
// and while volumes are created and deleted. TestPlacement does the same 3 times.
func TestClusterPowerCuts(t *testing.T) {
	play(t, restart.PowerCuts(number(t, "NODELVM_TEST_CLUSTER_CUTS", 50), seed(t)))
}
