package alloc

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestRoundRoom: a round needs room in its pool, and goes before the pool is full.
func TestRoundRoom(t *testing.T) {
	for _, c := range []struct {
		what       string
		s          lvm.PoolStatus
		room, over bool
	}{
		{"empty", lvm.PoolStatus{DataTotal: 100, MetadataTotal: 100}, true, false},
		{"three quarters", lvm.PoolStatus{DataUsed: 75, DataTotal: 100, MetadataUsed: 75, MetadataTotal: 100}, true, false},
		{"data", lvm.PoolStatus{DataUsed: 80, DataTotal: 100, MetadataTotal: 100}, false, false},
		{"metadata", lvm.PoolStatus{DataTotal: 100, MetadataUsed: 80, MetadataTotal: 100}, false, false},
		{"full of data", lvm.PoolStatus{DataUsed: 90, DataTotal: 100, MetadataTotal: 100}, false, true},
		{"full of metadata", lvm.PoolStatus{DataTotal: 100, MetadataUsed: 90, MetadataTotal: 100}, false, true},
		{"failed", lvm.PoolStatus{Failed: true}, false, true},
		{"read-only", lvm.PoolStatus{Mode: "ro", DataTotal: 100, MetadataTotal: 100}, false, true},
	} {
		g := lvm.Group{Name: "vg"}
		if err := CheckRoundRoom(g, "pool", c.s); (err == nil) != c.room {
			t.Errorf("%s: %v", c.what, err)
		}
		if err := CheckRoundsFit(g, "pool", c.s); (err != nil) != c.over {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// TestReceiveRefuses: an offer is another node's word, so what it says of a volume must not become a logical volume that this node cannot read.
func TestReceiveRefuses(t *testing.T) {
	class := lvm.Class{Group: "vg", Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero}
	good := lvm.Incoming{Spec: lvm.Spec{Name: "v", Class: class, Required: 8 * lvm.MiB}, Move: "0123456789abcdef0123456789abcdef", FormatMark: 4 * lvm.MiB}
	for what, spoil := range map[string]func(in *lvm.Incoming){
		"a mark within a block": func(in *lvm.Incoming) { in.FormatMark = 5 },
		"a mark before":         func(in *lvm.Incoming) { in.FormatMark = -lvm.FormatMarkSize },
		"a mark behind":         func(in *lvm.Incoming) { in.FormatMark = 8 * lvm.MiB },
		"no move":               func(in *lvm.Incoming) { in.Move = "" },
		"a long move":           func(in *lvm.Incoming) { in.Move += "0" },
		"no size":               func(in *lvm.Incoming) { in.Spec.Required = 0 },
		"no name":               func(in *lvm.Incoming) { in.Spec.Name = "" },
		"a source of a linear":  func(in *lvm.Incoming) { in.Spec.Source = lvm.ID{VG: "elsewhere", LV: "s"} },
		"a source here": func(in *lvm.Incoming) {
			in.Spec.Class.Layout, in.Spec.Class.Wipe, in.Spec.Source = lvm.LayoutThin, "", lvm.ID{VG: "here", LV: "s"}
		},
		"a read-only copy": func(in *lvm.Incoming) {
			in.Spec.Class.Layout, in.Spec.Class.Wipe, in.Spec.Source, in.Spec.Access = lvm.LayoutThin, "", lvm.ID{VG: "elsewhere", LV: "s"}, lvm.AccessReadOnly
		},
	} {
		in := good
		spoil(&in)
		if _, err := PlanReceive(lvm.State{Groups: []lvm.Group{{UUID: "here"}}}, "cluster", in); lvm.KindOf(err) != lvm.KindInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := PlanReceive(lvm.State{}, "cluster", good); lvm.KindOf(err) != lvm.KindInsufficientCapacity {
		t.Errorf("a node without a group: %v", err)
	}
}
