package capacity

import (
	"maps"
	"slices"
	"testing"
	"time"

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

// TestUsage: processes of nodes by what they belong to, and the children of the driver by themselves.
func TestUsage(t *testing.T) {
	used := usage{}
	for _, line := range []string{
		"7 (nodelvm) S 1 7 7 0 -1 4194560 9 8 7 6 100 50 2000 1000 20 0 9 0 12 1 2\n",
		"8 (containerd-shim) S 1 7 7 0 -1 4194560 9 8 7 6 10 10 10 10 20 0 9 0 12 1 2\n",
		"9 (a (b) c) S 1 7 7 0 -1 4194560 9 8 7 6 1 0 0 0 20 0 9 0 12 1 2\n",
	} {
		if err := used.add(line); err != nil {
			t.Error(err)
		}
	}
	want := usage{usedByDriver: 1500 * time.Millisecond, usedByTools: 30 * time.Second, "containerd and runc": 400 * time.Millisecond, usedByRest: 10 * time.Millisecond}
	if !maps.Equal(used, want) {
		t.Errorf("%v, want %v", used, want)
	}
	for _, line := range []string{"", "7 nodelvm S 1", "7 (nodelvm) S 1 2 3"} {
		if err := used.add(line); err == nil {
			t.Errorf("%q was accepted", line)
		}
	}
	table := rows(usage{usedByDriver: time.Second}, used.since(usage{usedByDriver: 500 * time.Millisecond}), 10)
	if len(table) != 4 || !slices.Equal(table[0], []string{usedByTools, "0.0", "30.0", "3000"}) || !slices.Equal(table[3], []string{usedByDriver, "1.0", "1.0", "0"}) {
		t.Errorf("%q", table)
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
