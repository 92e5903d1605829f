package health

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestPoolRemedy: a pool of a group without free extents cannot be extended before the group has another disk.
func TestPoolRemedy(t *testing.T) {
	g := lvm.Group{Name: "vg", PVs: []lvm.PV{{UUID: "a", Allocatable: true}}}
	const extend = "extend the pool (lvextend -L+SIZE vg/pool; its metadata: lvextend --poolmetadatasize +SIZE vg/pool)"
	if got, want := poolRemedy(g, "pool", false), "delete snapshots or volumes, or add a disk to volume group vg, which has no extent to allocate (vgextend vg DISK), and "+extend; got != want {
		t.Errorf("full: %q, want %q", got, want)
	}
	g.PVs[0].Free = []lvm.Run{{Count: 1}}
	if got := poolRemedy(g, "pool", false); !strings.HasSuffix(got, "volumes, or "+extend) {
		t.Errorf("with free space: %q", got)
	}
}
