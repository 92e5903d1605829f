//go:build e2e

package e2e

import (
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/test/scenario/measure"
)

// TestScale measures the requests and the memory of an idle cluster, without and with the objects of 1,000 nodes and 20,000 volumes
// (NODELVM_TEST_SCALE_NODES, NODELVM_TEST_SCALE_VOLUMES, NODELVM_TEST_SCALE_MINUTES). It needs an otherwise idle machine.
func TestScale(t *testing.T) {
	play(t, measure.Scaling(measure.Scale{
		Nodes:   number(t, "NODELVM_TEST_SCALE_NODES", 1000),
		Volumes: number(t, "NODELVM_TEST_SCALE_VOLUMES", 20000),
		Idle:    time.Duration(number(t, "NODELVM_TEST_SCALE_MINUTES", 5)) * time.Minute,
		Own:     10,
	}))
}
