package diskfailure

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestDiskLostDuringCommand: a disk disappears while lvcreate or lvextend runs, which still exits with 0. The driver does not return the
// volume, nor its new size, until the disk is back, not even to a repeated request.
func TestDiskLostDuringCommand(t *testing.T) {
	for _, command := range []string{"lvcreate", "lvextend"} {
		t.Run(command, func(t *testing.T) {
			node := hosttest.NewNode()
			b := hosttest.OnFake(node)
			lose := func(is bool) {
				node.Change("vg-test", func(g *lvm.Group) {
					for i := range g.PVs {
						g.PVs[i].Missing = is
					}
				})
			}
			d := hosttest.StartDriver(t, node, lvm.Config{Observe: func(c lvm.Command) {
				if c.Name == command {
					lose(true)
				}
			}})
			request := func() (lvm.Volume, error) { return d.Create(t.Context(), b.Spec("a", 16*lvm.MiB)) }
			if command == "lvextend" {
				v := d.MustCreate(t, b.Spec("a", 8*lvm.MiB))
				request = func() (lvm.Volume, error) { return d.Extend(t.Context(), v.ID, 16*lvm.MiB, 0) }
			}
			for range 2 {
				hosttest.Refused(t, "the request without the disk", lvm.KindBusy)(request())
			}
			lose(false)
			v, err := request()
			if err != nil || v.State != lvm.StateReady || v.Size != 16*lvm.MiB || len(node.Group("vg-test").LVs) != 1 {
				t.Errorf("with the disk back: %+v, %v", v, err)
			}
			node.Change("vg-test", func(g *lvm.Group) {
				at := hosttest.FindLV(t, *g, v.ID.LV).Segments[0].Areas[0].PV
				for i := range g.PVs {
					g.PVs[i].Missing = g.PVs[i].UUID != at
				}
			})
			if _, err := d.Extend(t.Context(), v.ID, 16*lvm.MiB, 0); err != nil {
				t.Errorf("a complete volume beside missing disks: %v", err)
			}
			lose(false)
		})
	}
}

// TestDisksChangeDuringCommand: a disk joins or leaves the group after the driver has read it, while the command waits for LVM's
// lock. The command commits nothing: it would set the disk's MISSING flag. The repeated request succeeds.
func TestDisksChangeDuringCommand(t *testing.T) {
	away := lvm.PV{}
	for what, disks := range map[string]struct{ change, after func(*lvm.Group) }{
		"an admin's vgextend": {func(g *lvm.Group) {
			g.PVs = append(g.PVs, lvm.PV{UUID: "AAAAAA-aaaa-AAAA-aaaa-AAAA-aaaa-AAAAAA", Device: "/dev/fakez", Extents: 10, Allocatable: true})
		}, func(*lvm.Group) {}},
		"a disk that is pulled": {func(g *lvm.Group) { away = g.PVs[5]; g.PVs[5].Missing, g.PVs[5].Device = true, "" }, func(g *lvm.Group) { g.PVs[5] = away }},
	} {
		for _, command := range []string{"lvchange", "lvremove"} {
			node, b, d := hosttest.Started(t)
			spec := b.Spec("v", 8*lvm.MiB)
			if command == "lvremove" {
				spec = b.Light("v", 8*lvm.MiB)
			}
			v := d.MustCreate(t, spec)
			d.MustActivate(t, v) // tagged as ready
			node.Before(func(argv []string) {
				if argv[0] == command {
					node.Before(nil)
					node.Change("vg-test", disks.change)
				}
			})
			if err := d.Delete(t.Context(), v.ID); err == nil {
				t.Errorf("%s under %s: no error", what, command)
			}
			for _, pv := range node.Group("vg-test").PVs {
				if pv.MissingFlag {
					t.Errorf("%s under %s: the disk %s has the MISSING flag", what, command, pv.UUID)
				}
			}
			node.Change("vg-test", disks.after)
			d.MustRemove(t, v)
		}
	}
}

// TestUnresponsiveDisk: the driver starts no command in a group with an unresponsive disk; when the disk answers, the group works
// again.
func TestUnresponsiveDisk(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	v := d.MustCreate(t, b.Spec("v", 8*lvm.MiB))
	silence := func(is bool) { node.Change("vg-test", func(g *lvm.Group) { g.PVs[3].Unresponsive = is }) }
	silence(true)
	d.Counted(t, "requests that would change the group", 0, func() {
		err := d.Delete(t.Context(), v.ID)
		hosttest.WantKind(t, "delete", err, lvm.KindBusy)
		if err != nil && !strings.Contains(err.Error(), "is unresponsive") {
			t.Errorf("the error does not name the cause: %v", err)
		}
	})
	commands := len(node.Commands())
	if _, err := d.Activate(t.Context(), v.ID, v.UUID); err == nil {
		t.Error("the driver handed out a volume that it cannot tag as ready")
	}
	if n := len(node.Commands()); n != commands {
		t.Errorf("the first use started %d commands", n-commands)
	}
	silence(false)
	d.MustRemove(t, v)
}
