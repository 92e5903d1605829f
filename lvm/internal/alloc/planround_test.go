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
