package capacity

import (
	"testing"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// Lines as a driver's /metrics has them.
const someMetrics = `# TYPE csi_plugin_operations_seconds histogram
csi_plugin_operations_seconds_bucket{driver_name="nodelvm.io",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume",le="0.001"} 0
csi_plugin_operations_seconds_sum{driver_name="nodelvm.io",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 3
csi_plugin_operations_seconds_count{driver_name="nodelvm.io",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 6
csi_plugin_operations_seconds_sum{driver_name="nodelvm.io",grpc_status_code="ResourceExhausted",method_name="/csi.v1.Controller/CreateVolume"} 0.01
csi_plugin_operations_seconds_count{driver_name="nodelvm.io",grpc_status_code="ResourceExhausted",method_name="/csi.v1.Controller/CreateVolume"} 2
`

func TestFailedIn(t *testing.T) {
	if n, err := failedIn(someMetrics); n != 2 || err != nil {
		t.Errorf("%v calls failed, %v; want 2", n, err)
	}
}

func TestChangeHappened(t *testing.T) {
	before := scenario.GroupState{FreeExtents: 100, ExtentSize: 4 << 20, Volumes: 3}
	for name, test := range map[string]struct {
		change change
		now    scenario.GroupState
		want   bool
	}{
		"not yet":            {change{extents: -16}, before, false},
		"taken":              {change{extents: -16}, scenario.GroupState{FreeExtents: 84, ExtentSize: 4 << 20, Volumes: 4}, true},
		"too much":           {change{extents: -16}, scenario.GroupState{FreeExtents: 83, ExtentSize: 4 << 20, Volumes: 4}, false},
		"a pool was made":    {change{volumes: 1}, scenario.GroupState{FreeExtents: 20, ExtentSize: 4 << 20, Volumes: 4}, true},
		"a disk is lost":     {change{lost: 1}, scenario.GroupState{FreeExtents: 100, ExtentSize: 4 << 20, Volumes: 3, LostDisks: 1}, true},
		"a disk is not lost": {change{lost: 1}, before, false},
	} {
		if got := test.change.happened(before, test.now); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if room := (scenario.GroupState{FreeExtents: 100, ExtentSize: 4 << 20, LostDisks: 1}).Capacity(); room != 0 {
		t.Errorf("a group that has lost a disk offers %d bytes", room)
	}
}
