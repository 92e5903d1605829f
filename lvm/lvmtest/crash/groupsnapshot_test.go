//go:build reallvm && amd64

package crash

import (
	"context"
	"os"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// makeOrigins creates two active volumes with a pattern in each.
func (c *crash) makeOrigins(d *hosttest.Driver) {
	c.makeOrigin(d)
	v := d.MustCreate(c.t, c.b.Thin("second", 8*lvm.MiB, lvm.ID{}))
	f, err := os.OpenFile(d.MustActivate(c.t, v), os.O_WRONLY, 0)
	hosttest.Must(c.t, err)
	_, err = f.WriteString(strings.Repeat(pattern, 1<<15))
	hosttest.Must(c.t, err)
	hosttest.Must(c.t, f.Sync())
	hosttest.Must(c.t, f.Close())
}

func (c *crash) groupSnapshot(d *hosttest.Driver) error {
	spec := lvm.GroupSnapshotSpec{Name: c.name()}
	for _, name := range []string{"origin", "second"} {
		v, err := c.find(d, name)
		if err != nil {
			return err
		}
		spec.Sources = append(spec.Sources, v.ID)
		if _, err := d.ActivateAs(context.Background(), v.ID, v.UUID, v.Class.Encryption); err != nil {
			return err
		}
	}
	_, err := d.CreateGroupSnapshot(context.Background(), spec, func(context.Context, lvm.ID) (func(), error) { return func() {}, nil })
	return err
}

func (c *crash) checkGroupSnapshot(d *hosttest.Driver) {
	snapshots := d.Snapshots(c.t)
	if len(snapshots) != 2 {
		c.t.Fatalf("listed snapshots %+v", snapshots)
	}
	for _, sn := range snapshots {
		restored := d.MustCreate(c.t, c.b.Thin("restored", 0, sn.ID))
		_, device := c.volume(d, "restored")
		c.checkPattern(device)
		hosttest.Must(c.t, d.Delete(context.Background(), restored.ID))
	}
	c.checkNoGroupSnapshot(d)
}

func (c *crash) prepareGroupSnapshot(d *hosttest.Driver) { hosttest.Must(c.t, c.groupSnapshot(d)) }

// removeGroupSnapshot removes the group snapshot, if there is one.
func (c *crash) removeGroupSnapshot(d *hosttest.Driver) error {
	return d.DeleteGroupSnapshot(context.Background(), lvm.ID{VG: c.b.ReadGroup(c.t).UUID, LV: lvm.GroupSnapshotName(c.name())})
}

// checkNoGroupSnapshot removes what is left of the case, and checks that the volumes, and their data are as before.
func (c *crash) checkNoGroupSnapshot(d *hosttest.Driver) {
	hosttest.Must(c.t, c.removeGroupSnapshot(d))
	for _, name := range []string{"origin", "second"} {
		_, device := c.volume(d, name)
		c.checkPattern(device)
	}
	d.WaitWiped(c.t)
	c.nothingBut(2)
}
