package capacity

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/scenario"
)

// Lines as a driver's /metrics has them.
const someMetrics = `# TYPE csi_plugin_operations_seconds histogram
csi_plugin_operations_seconds_bucket{driver_name="nodelvm.io",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume",le="0.001"} 0
csi_plugin_operations_seconds_sum{driver_name="nodelvm.io",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 3
csi_plugin_operations_seconds_count{driver_name="nodelvm.io",grpc_status_code="OK",method_name="/csi.v1.Controller/CreateVolume"} 6
csi_plugin_operations_seconds_sum{driver_name="nodelvm.io",grpc_status_code="ResourceExhausted",method_name="/csi.v1.Controller/CreateVolume"} 0.01
csi_plugin_operations_seconds_count{driver_name="nodelvm.io",grpc_status_code="ResourceExhausted",method_name="/csi.v1.Controller/CreateVolume"} 2
nodelvm_lvm_command_duration_seconds_sum{command="lvcreate",exit_code="0"} 1.5
nodelvm_lvm_command_duration_seconds_count{command="lvcreate",exit_code="0"} 6
nodelvm_lvm_command_duration_seconds_count{command="lvcreate",exit_code="5"} 1
`

func TestFigures(t *testing.T) {
	before, after := figures{}, figures{}
	if err := before.add(someMetrics); err != nil {
		t.Fatal(err)
	}
	for range 2 { // two nodes
		if err := after.add(someMetrics); err != nil {
			t.Fatal(err)
		}
	}
	since := after.minus(before)
	if n := since.failed(createVolume); n != 2 {
		t.Errorf("%v calls failed, want 2", n)
	}
	if n := since.failed("NodeStageVolume"); n != 0 {
		t.Errorf("%v calls failed, want none", n)
	}
	for operation, want := range map[string]time.Duration{createVolume: 500 * time.Millisecond, "lvcreate": 250 * time.Millisecond} {
		if mean, count := since.mean(operation); mean != want || count != 6 {
			t.Errorf("%s: %v of %s, want 6 of %s", operation, count, mean, want)
		}
	}
}

func TestReadStages(t *testing.T) {
	const log = `not a line of its own
{"level":"info","time":"2026-11-21T19:00:01.5Z","msg":"creating a file system","volume":"g/a","type":"ext4"}
{"level":"info","time":"2026-11-21T19:00:02Z","msg":"csi","call":"NodeStageVolume","took":0.75,"volume":"g/a"}
{"level":"info","time":"2026-11-21T19:00:03Z","msg":"csi","call":"NodeStageVolume","took":0.75,"volume":"g/old"}
`
	all, err := readStages(strings.NewReader(log))
	if want := (stage{before: 250 * time.Millisecond, after: 500 * time.Millisecond}); err != nil || len(all) != 1 || all[0] != want {
		t.Errorf("%v, %v, want %v alone", all, err, want)
	}
}

// TestTimeline: what counts is when something was first seen; a claim's moments are its pod's.
func TestTimeline(t *testing.T) {
	line := &timeline{start: time.Now(), pods: map[string]*moments{}}
	meta := metav1.ObjectMeta{Name: "burst-0"}
	line.note(&corev1.Pod{ObjectMeta: meta})
	line.note(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-burst-0", Annotations: map[string]string{scenario.AnnSelectedNode: "node-2"}}})
	if len(line.all()) != 0 {
		t.Error("a pod that does not run counts")
	}
	line.note(&corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data-burst-0"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	})
	ready := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	line.note(&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node-2"}, Status: ready})
	first := line.took()
	line.note(&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "node-2"}, Status: ready})
	all := line.all()
	if len(all) != 1 || line.took() != first {
		t.Fatalf("%v after %s, and after %s", all, first, line.took())
	}
	m := all[0]
	for _, moment := range []time.Time{m.made, m.chosen, m.bound, m.scheduled, m.running} {
		if moment.IsZero() {
			t.Errorf("a moment is missing: %+v", m)
		}
	}
	if on := line.nodes(); len(on) != 1 || on[0] != 1 {
		t.Errorf("pods by node: %v", on)
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
