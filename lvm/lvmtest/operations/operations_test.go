package operations

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestFrozenFileSystemIsNotCopied: the driver refuses a snapshot or clone of a volume with a frozen file system before it changes anything.
func TestFrozenFileSystemIsNotCopied(t *testing.T) {
	node, b, d := hosttest.Started(t)
	v := d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{}))
	device := d.MustActivate(t, v)
	node.Freeze(device, true)
	spec := lvm.SnapshotSpec{Name: "s", Source: v.ID}
	d.Counted(t, "a snapshot of a frozen file system", 0, func() {
		hosttest.Refused(t, "a snapshot of a frozen file system", lvm.KindBusy)(d.CreateSnapshot(t.Context(), spec))
	})
	d.Counted(t, "a clone of a frozen file system", 0, func() {
		hosttest.Refused(t, "a clone of a frozen file system", lvm.KindBusy)(d.Create(t.Context(), b.Thin("c", 8*lvm.MiB, v.ID)))
	})
	node.Freeze(device, false)
	d.Counted(t, "the snapshot", 3, func() { d.MustSnapshot(t, spec.Name, spec.Source) })
	d.MustCreate(t, b.Thin("c", 8*lvm.MiB, v.ID))
	if b.Suspended(t, device) {
		t.Error("the origin is suspended")
	}
}

// TestUncertainCreateAsksForRetry: while a failed create may have left something, its error asks the caller to retry: after any other error
// csi-provisioner would forget the volume.
func TestUncertainCreateAsksForRetry(t *testing.T) {
	for what, fail := range map[string]func(*lvmtest.Node) (restore func()){
		"the leftover cannot be removed": func(n *lvmtest.Node) func() {
			n.Before(func(argv []string) {
				if argv[0] == "lvcreate" {
					n.Fail(lvmtest.Fault{}) // the next command fails too
				}
			})
			return func() {}
		},
		"its group is gone": func(n *lvmtest.Node) func() {
			plug := func() {}
			n.Before(func(argv []string) {
				if plug(); argv[0] == "lvcreate" {
					plug = n.Unplug("vg-test")
				}
			})
			return func() { plug() }
		},
		"its disk falls silent": func(n *lvmtest.Node) func() {
			n.Before(func([]string) { n.Change("vg-test", func(g *lvm.Group) { g.PVs[0].Unresponsive = true }) })
			return func() { n.Change("vg-test", func(g *lvm.Group) { g.PVs[0].Unresponsive = false }) }
		},
		"its disk goes away": func(n *lvmtest.Node) func() {
			n.Before(func([]string) { n.Change("vg-test", func(g *lvm.Group) { g.PVs[0].Missing = true }) })
			return func() { n.Change("vg-test", func(g *lvm.Group) { g.PVs[0].Missing = false }) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			node := hosttest.NewNode()
			b := hosttest.OnFake(node)
			d := b.Start(t)
			node.Fail(lvmtest.Fault{Late: true})
			restore := fail(node)
			hosttest.Refused(t, what, lvm.KindBusy)(d.Create(t.Context(), b.Spec("v", 8*lvm.MiB)))
			node.Before(nil)
			restore()
			d.MustCreate(t, b.Spec("v", 8*lvm.MiB))
		})
	}
}

// TestUnfinishedCloneSnapshots: what failed commands left of the snapshot of a clone is listed, and can be deleted without a restart.
func TestUnfinishedCloneSnapshots(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	d := b.Start(t)
	v := d.MustCreate(t, b.Thin("origin", 8*lvm.MiB, lvm.ID{}))
	d.MustActivate(t, v)
	d.MustSnapshot(t, "user's", v.ID)
	node.Before(func(argv []string) {
		if argv[0] == "lvcreate" {
			node.Fail(lvmtest.Fault{}) // the next command, which tags it as ready
		}
	})
	spec := lvm.SnapshotSpec{Name: "clone-1", Source: v.ID, Claim: "shop/data-0"}
	if _, err := d.CreateSnapshot(t.Context(), spec); err == nil {
		t.Fatal("it is tagged as ready")
	}
	node.Before(nil)
	all, err := d.CloneSnapshots(t.Context())
	hosttest.Must(t, err)
	if len(all) != 1 || all[0].State != lvm.StateCreating || all[0].Claim != spec.Claim || all[0].Source != v.ID {
		t.Fatalf("%+v", all)
	}
	hosttest.Must(t, d.DeleteSnapshot(t.Context(), all[0].ID))
	if all, err = d.CloneSnapshots(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestFullMetadataAreaKeepsRoomForDeletions: nothing that makes the metadata longer leaves too little of its area for a deletion, which must write
// too.
func TestFullMetadataAreaKeepsRoomForDeletions(t *testing.T) {
	node, b, d := hosttest.Started(t)
	v := d.MustCreate(t, b.Spec("v", 8*lvm.MiB))
	b.Admin(t, "lvcreate", "-y", "-l", "1", "-n", "theirs", b.Group)
	limits := lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100}}
	_, err := d.SetLimits(t.Context(), v.ID, v.UUID, limits)
	hosttest.Must(t, err)
	node.Change(b.Group, func(g *lvm.Group) { g.MDAFree = 16 * lvm.KiB })
	more := limits
	more.Fixed.WriteIOPS = 50
	hosttest.Refused(t, "further limits", lvm.KindInsufficientCapacity)(d.SetLimits(t.Context(), v.ID, v.UUID, more))
	hosttest.Refused(t, "adopt", lvm.KindInsufficientCapacity)(d.Adopt(t.Context(), lvm.VGName(b.Group), "theirs", "theirs", ""))
	hosttest.WantKind(t, "note a move", d.NoteMove(t.Context(), v.ID, v.UUID, "a record"), lvm.KindInsufficientCapacity)
	_, err = d.SetLimits(t.Context(), v.ID, v.UUID, lvm.Limits{})
	hosttest.Must(t, err)
	d.MustRemove(t, v)
}
