//go:build reallvm

package crash

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// crashOp is an operation that the test interrupts.
type crashOp struct {
	name    string
	setUp   func(*crash, *hosttest.Driver)       // once
	prepare func(*crash, *hosttest.Driver)       // before each case
	use     func(*crash) func() time.Duration    // uses the volumes as pods do, until the returned function is called: the longest wait of one
	do      func(*crash, *hosttest.Driver) error // the request, repeated after the crash
	check   func(*crash, *hosttest.Driver)       // checks the outcome, and cleans up for the next case
}

var crashOps = slices.Concat(moveOps, roundOps, []crashOp{
	{name: "create", do: (*crash).create, check: (*crash).checkCreated},
	{name: "raid create", do: (*crash).create, check: (*crash).checkCreated},
	{name: "raw create", prepare: (*crash).leaveDirt, do: (*crash).create, check: (*crash).checkCreated},
	{name: "raw extend", setUp: (*crash).makeOrigin, prepare: (*crash).leaveDirt, do: (*crash).extend, check: (*crash).checkExtended},
	{name: "pool create", setUp: (*crash).makeForeign, do: (*crash).create, check: (*crash).checkPool},
	{name: "extend", setUp: (*crash).makeOrigin, prepare: (*crash).aimHigher, do: (*crash).extend, check: (*crash).checkExtended},
	{name: "extend thin", setUp: (*crash).makeOrigin, prepare: (*crash).aimHigher, do: (*crash).extend, check: (*crash).checkExtended},
	{name: "thin create", setUp: (*crash).makeOrigin, do: (*crash).create, check: (*crash).checkCreated},
	{name: "snapshot", setUp: (*crash).makeOrigin, do: (*crash).snapshot, check: (*crash).checkSnapshot},
	{name: "group snapshot", setUp: (*crash).makeOrigins, use: (*crash).startPods, do: (*crash).groupSnapshot, check: (*crash).checkGroupSnapshot},
	{name: "group snapshot removal", setUp: (*crash).makeOrigins, prepare: (*crash).prepareGroupSnapshot, do: (*crash).removeGroupSnapshot, check: (*crash).checkNoGroupSnapshot},
	{name: "copy", setUp: (*crash).makeOrigin, do: (*crash).create, check: (*crash).checkCreated},
	{name: "read-only copy", setUp: (*crash).makeOrigin, prepare: (*crash).makeCopy, do: (*crash).setReplayed, check: (*crash).checkReadOnly},
	{name: "remove", prepare: (*crash).makeVictim, do: (*crash).remove, check: (*crash).checkRemoved},
	{name: "thin remove", setUp: (*crash).makeOrigin, prepare: (*crash).makeVictim, do: (*crash).remove, check: (*crash).checkRemoved},
	{name: "wipe", prepare: (*crash).makeVictim, do: (*crash).remove, check: (*crash).checkRemoved},
})

// spec is the volume of the case.
func (c *crash) spec() lvm.Spec {
	spec := c.b.Spec(c.name(), 8*lvm.MiB)
	switch c.op.name {
	case "raw create":
		spec.Block = true
	case "wipe":
		spec.Required = max(spec.Required, c.size)
	case "raid create", "receive raid":
		spec.Class = c.b.In(lvm.Class{Layout: lvm.LayoutRAID1, Mirrors: 1})
	case "pool create", "thin create", "thin remove", "copy", "read-only copy", "receive thin":
		spec.Class = c.b.Thin("", 0, lvm.ID{}).Class
	}
	if c.op.name != "wipe" && spec.Class.Layout != lvm.LayoutThin {
		spec.Class.Wipe = lvm.WipeNone // the clean-up must be fast
	}
	return spec
}

func (c *crash) create(d *hosttest.Driver) error {
	spec := c.spec()
	if c.op.name == "copy" || c.op.name == "read-only copy" {
		origin, err := c.find(d, "origin")
		if err != nil {
			return err
		}
		spec.Source = origin.ID
	}
	if c.op.name == "read-only copy" {
		spec.Access = lvm.AccessReplay
	}
	_, err := d.Create(context.Background(), spec)
	return err
}

func (c *crash) find(d *hosttest.Driver, name string) (lvm.Volume, error) {
	volumes, err := d.List(context.Background())
	i := slices.IndexFunc(volumes, func(v lvm.Volume) bool { return v.Name == name })
	if err != nil || i < 0 {
		return lvm.Volume{}, fmt.Errorf("no volume %s (%w)", name, err)
	}
	return volumes[i], nil
}

// volume returns a volume that must exist, be active and work.
func (c *crash) volume(d *hosttest.Driver, name string) (lvm.Volume, string) {
	c.t.Helper()
	v, err := c.find(d, name)
	hosttest.Must(c.t, err)
	device := d.MustActivate(c.t, v)
	if c.b.Suspended(c.t, device) {
		c.t.Fatalf("%s is suspended", name)
	}
	return v, device
}

func (c *crash) checkCreated(d *hosttest.Driver) {
	v, device := c.volume(d, c.name())
	if v.Size != 8*lvm.MiB || v.State != lvm.StateReady {
		c.t.Errorf("created %+v", v)
	}
	switch c.op.name {
	case "copy":
		c.checkPattern(device)
	case "raid create":
		c.b.CheckLegs(c.t, v, 2)
	case "raw create":
		if n := reallvm.Leaks(c.t, device, v); n > 0 {
			c.t.Errorf("%d MiB of it are not zero", n)
		}
	default:
		if head := reallvm.ReadAt(c.t, device, 0, 4096); !bytes.Equal(head, make([]byte, 4096)) {
			c.t.Error("its head is not blank")
		}
	}
	d.MustRemove(c.t, v)
	c.nothingBut(1)
}

func (c *crash) checkPool(d *hosttest.Driver) {
	c.checkCreated(d)
	c.b.RemovePool(c.t)
	c.nothingBut(1)
}

// makeForeign creates a volume of an admin that looks like what LVM leaves when it is killed while it creates its spare for
// pool metadata: of the same size, without tags, with a name that LVM chooses.
func (c *crash) makeForeign(*hosttest.Driver) {
	c.b.Admin(c.t, "lvcreate", "-y", "-l", "1", c.b.Group)
}

// nothingBut checks that the group has only so many volumes, those of setUp (a pool is one more).
func (c *crash) nothingBut(most int) {
	var left []string
	for _, lv := range c.b.ReadGroup(c.t).LVs {
		if !lv.Hidden && lv.Name != lvm.DefaultPool {
			left = append(left, lv.Name)
		}
	}
	if c.op.setUp == nil {
		most = 0
	}
	if len(left) > most {
		c.t.Errorf("the group has %v", left)
	}
}

const pattern = "what was written before stays. "

// makeOrigin creates a volume with a pattern in it.
func (c *crash) makeOrigin(d *hosttest.Driver) {
	spec := c.b.Spec("origin", 8*lvm.MiB)
	spec.Class.Wipe = lvm.WipeNone
	switch c.op.name {
	case "extend":
	case "raw extend":
		spec.Block = true
	default:
		spec.Class = c.b.Thin("", 0, lvm.ID{}).Class
	}
	v := d.MustCreate(c.t, spec)
	device := d.MustActivate(c.t, v)
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	hosttest.Must(c.t, err)
	_, err = f.WriteString(strings.Repeat(pattern, 1<<15))
	hosttest.Must(c.t, err)
	hosttest.Must(c.t, f.Sync())
	hosttest.Must(c.t, f.Close())
	c.size = v.Size
}

// checkStarted checks that a start leaves nothing unfinished and no pending messages, before the request is repeated.
func (c *crash) checkStarted() {
	c.checkMetadata()
	g := c.b.ReadGroup(c.t)
	for _, lv := range g.LVs {
		if !lv.Hidden && (slices.Contains(lv.Tags, "nodelvm.state=creating") || slices.Contains(lv.Tags, "nodelvm.state=zeroing") || slices.Contains(lv.Tags, "nodelvm.state=comparing")) { // the parts keep their first tags
			c.t.Errorf("after a start %s is unfinished", lv.Name)
		}
		if lv.Thin == nil {
			continue
		}
		if len(lv.Thin.Messages) > 0 {
			c.t.Errorf("after a start LVM has %q for its pool", lv.Thin.Messages)
		}
		if lost := reallvm.LostDevices(c.t, crashGroup); len(lost) > 0 {
			c.t.Errorf("after a start the thin pool and LVM differ in the devices %v", lost)
		}
	}
}

// checkOthers checks that other requests need not wait for the repeated one: the volumes are usable, and the pool can be
// changed.
func (c *crash) checkOthers(d *hosttest.Driver) {
	if c.op.setUp == nil || c.op.name == "pool create" {
		return
	}
	_, device := c.volume(d, "origin")
	c.checkPattern(device)
	if c.op.name != "extend" && c.op.name != "raw extend" {
		other := d.MustCreate(c.t, c.b.Thin("other", 8*lvm.MiB, lvm.ID{}))
		hosttest.Must(c.t, d.Delete(context.Background(), other.ID))
	}
}

func (c *crash) checkPattern(device string) {
	c.t.Helper()
	want := strings.Repeat(pattern, 1<<15)
	if got := reallvm.ReadAt(c.t, device, 0, len(want)); string(got) != want {
		c.t.Error("the data written before is missing")
	}
}

func (c *crash) aimHigher(*hosttest.Driver) { c.size += lvmtest.ExtentSize }

// leaveDirt makes sure that the next volume or extension gets extents with old data.
func (c *crash) leaveDirt(d *hosttest.Driver) {
	c.aimHigher(d)
	v := d.MustCreate(c.t, c.b.Light("dirt", 32*lvm.MiB))
	reallvm.FillVolume(c.t, d, v)
	hosttest.Must(c.t, d.Delete(context.Background(), v.ID))
}

func (c *crash) extend(d *hosttest.Driver) error {
	v, err := c.find(d, "origin")
	if err != nil {
		return err
	}
	_, err = d.Extend(context.Background(), v.ID, c.size, 0)
	return err
}

func (c *crash) checkExtended(d *hosttest.Driver) {
	v, device := c.volume(d, "origin")
	if v.Size != c.size {
		c.t.Errorf("extended to %s, want %s", v.Size, c.size)
	}
	c.checkPattern(device)
	reallvm.ReadAt(c.t, device, int64(v.Size)-4096, 4096) // the kernel has the new size
	if c.op.name == "raw extend" {
		if n := reallvm.Leaks(c.t, device, v); n != 1 { // the pattern
			c.t.Errorf("%d MiB of it are not zero, want 1", n)
		}
	}
	d.WaitWiped(c.t)
	c.nothingBut(1)
}

func (c *crash) snapshot(d *hosttest.Driver) error {
	origin, err := c.find(d, "origin")
	if err != nil {
		return err
	}
	_, err = d.CreateSnapshot(context.Background(), lvm.SnapshotSpec{Name: c.name(), Source: origin.ID})
	return err
}

func (c *crash) checkSnapshot(d *hosttest.Driver) {
	snapshots := d.Snapshots(c.t)
	if len(snapshots) != 1 || snapshots[0].Name != c.name() || snapshots[0].State != lvm.StateReady {
		c.t.Fatalf("listed snapshots %+v", snapshots)
	}
	_, device := c.volume(d, "origin")
	c.checkPattern(device)
	restored := d.MustCreate(c.t, c.b.Thin("restored", 0, snapshots[0].ID))
	_, device = c.volume(d, "restored")
	c.checkPattern(device)
	hosttest.Must(c.t, d.Delete(context.Background(), restored.ID))
	hosttest.Must(c.t, d.DeleteSnapshot(context.Background(), snapshots[0].ID))
	d.WaitWiped(c.t)
	c.nothingBut(1)
}

// makeVictim creates the volume to delete.
func (c *crash) makeVictim(d *hosttest.Driver) {
	v := d.MustCreate(c.t, c.spec())
	device := d.MustActivate(c.t, v)
	if c.op.name == "wipe" {
		reallvm.Fill(c.t, device, v.Size)
	}
}

func (c *crash) remove(d *hosttest.Driver) error {
	if v, err := c.find(d, c.name()); err == nil {
		if err := d.Delete(context.Background(), v.ID); err != nil {
			return err
		}
	}
	d.WaitWiped(c.t)
	return nil
}

func (c *crash) checkRemoved(d *hosttest.Driver) {
	c.nothingBut(1)
	if c.op.name != "wipe" {
		return
	}
	v := d.MustCreate(c.t, c.b.Light("curious", c.spec().Required))
	if n := reallvm.Leaks(c.t, d.MustActivate(c.t, v), v); n > 0 {
		c.t.Errorf("%d MiB of the deleted volume can be read", n)
	}
	d.MustRemove(c.t, v)
}

// makeCopy creates a read-only copy whose journal was replayed, without the record of that.
func (c *crash) makeCopy(d *hosttest.Driver) { hosttest.Must(c.t, c.create(d)) }

// setReplayed activates the copy and records the begin of the replay first, as NodeStageVolume does.
func (c *crash) setReplayed(d *hosttest.Driver) error {
	v, err := c.find(d, c.name())
	if err != nil {
		return err
	}
	if _, err := d.Activate(context.Background(), v.ID, v.UUID); err != nil {
		return err
	}
	if v.Access.NeedsReplay() {
		if err := d.BeginReplay(context.Background(), v.ID, v.UUID); err != nil {
			return err
		}
	}
	return d.SetReplayed(context.Background(), v.ID, v.UUID)
}

func (c *crash) checkReadOnly(d *hosttest.Driver) {
	v, device := c.volume(d, c.name())
	// After a crash between the two records the driver no longer knows what the replay wrote.
	if v.Access != lvm.AccessReadOnly && v.Access != lvm.AccessReadOnlyFull || !reallvm.TakesNoWrites(c.t, device) {
		c.t.Errorf("it is %q, and the device takes no writes: %t", v.Access, reallvm.TakesNoWrites(c.t, device))
	}
	c.checkPattern(device)
	d.MustRemove(c.t, v)
	c.nothingBut(1)
}
