package host

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestAdoptableSnapshot: a snapshot that is not thin keeps what differs from its origin on its own extents, as the readers return it, and has
// neither their size nor their content.
func TestAdoptableSnapshot(t *testing.T) {
	g := fixture.TestGroup("vg", []lvm.Run{{Start: 9, Count: 91}})
	g.UUID = "aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa"
	linear := func(name string, start, extents lvm.Extents) lvm.LV {
		return lvm.LV{UUID: name, Name: name, Extents: extents, Type: "linear", Segments: []lvm.Segment{{Extents: extents, Type: "linear", Areas: []lvm.Area{{PV: g.PVs[0].UUID, Start: start}}}}}
	}
	g.LVs = []lvm.LV{linear("other", 0, 1), linear("o", 1, 6), linear("snap", 7, 2)}
	g.LVs[1].UsedBy = []string{"snap"}
	if _, err := adoptable(g, g.LVs[0]); err != nil {
		t.Errorf("a linear volume: %v", err)
	}
	if v, err := adoptable(g, g.LVs[2]); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "snapshot of o") {
		t.Errorf("a snapshot becomes %+v, %v", v, err)
	}
}
