package controller

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

func TestCheckTopology(t *testing.T) {
	here, there := topologyOf("node-1"), topologyOf("node-2")
	more := &csi.Topology{Segments: map[string]string{api.TopologyKey: "node-1", "zone": "a"}}
	list := func(t ...*csi.Topology) []*csi.Topology { return t }
	for _, test := range []struct {
		name        string
		requirement *csi.TopologyRequirement
		says        string // empty: accepted
	}{
		{"none", nil, ""},
		{"an empty one", &csi.TopologyRequirement{}, ""},
		{"here", &csi.TopologyRequirement{Requisite: list(here), Preferred: list(here)}, ""},
		{"requisite only", &csi.TopologyRequirement{Requisite: list(here)}, ""},
		{"here among others", &csi.TopologyRequirement{Requisite: list(there, here), Preferred: list(there, here)}, ""},
		{"elsewhere", &csi.TopologyRequirement{Requisite: list(there)}, "requested for " + api.TopologyKey + "=node-2"},
		{"preferred elsewhere only", &csi.TopologyRequirement{Requisite: list(here, there), Preferred: list(there)}, "node-2"},
		{"preferred alone, elsewhere", &csi.TopologyRequirement{Preferred: list(there)}, "node-2"},
		{"another segment as well", &csi.TopologyRequirement{Requisite: list(more)}, api.TopologyKey + "=node-1,zone=a"},
		{"no segments", &csi.TopologyRequirement{Requisite: list(&csi.Topology{})}, "requested for a topology without segments,"},
		{"a thousand", &csi.TopologyRequirement{Requisite: slices.Repeat(list(there), 1000)}, "=node-2 or 995 more,"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := checkTopology(test.requirement, "node-1")
			if test.says == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			if lvm.KindOf(err) != lvm.KindInsufficientCapacity || err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v; want KindInsufficientCapacity that says %q", err, test.says)
			}
		})
	}
}
