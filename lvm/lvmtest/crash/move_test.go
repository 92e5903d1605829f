//go:build reallvm

package crash

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// moveOps are the steps of a move that commit.
var moveOps = []crashOp{
	{name: "hold", prepare: (*crash).makeVictim, do: (*crash).hold, check: (*crash).checkHeld},
	{name: "release", prepare: (*crash).makeHeld, do: (*crash).releaseHeld, check: (*crash).checkReleased},
	{name: "hand over", prepare: (*crash).makeHeld, do: (*crash).handOver, check: (*crash).checkMoved},
	{name: "remove moved", prepare: (*crash).makeMoved, do: (*crash).removeMoved, check: (*crash).checkRemoved},
	{name: "receive", do: (*crash).receive, check: (*crash).checkReceiving},
	{name: "receive raid", do: (*crash).receive, check: (*crash).checkReceiving},
	{name: "receive thin", setUp: (*crash).makeOrigin, do: (*crash).receive, check: (*crash).checkReceiving},
	{name: "note copied", prepare: (*crash).makeReceiving, do: (*crash).noteCopied, check: (*crash).checkReceiving},
	{name: "received", prepare: (*crash).makeReceiving, do: (*crash).received, check: (*crash).checkReceived},
	{name: "finish", prepare: (*crash).makeReceived, do: (*crash).finish, check: (*crash).checkReleased},
	{name: "discard", prepare: (*crash).makeReceiving, do: (*crash).discard, check: (*crash).checkRemoved},
}

const crashMove = "0123456789abcdef0123456789abcdef"

// side finds the volume of the case, in any state of a move.
func (c *crash) side(d *hosttest.Driver) (lvm.Volume, bool) {
	all, err := d.Moves(context.Background())
	hosttest.Must(c.t, err)
	for _, v := range all {
		if v.Name == c.name() {
			return v, true
		}
	}
	return lvm.Volume{}, false
}

// mustBe returns the volume of the case, which has this state.
func (c *crash) mustBe(d *hosttest.Driver, state lvm.VolumeState) lvm.Volume {
	c.t.Helper()
	v, there := c.side(d)
	if !there || v.State != state || v.Move != crashMove {
		c.t.Fatalf("the volume is there: %t; %+v, want the state %s", there, v, state)
	}
	return v
}

func (c *crash) step(d *hosttest.Driver, do func(ctx context.Context, v lvm.Volume) error) error {
	if v, there := c.side(d); there {
		return do(context.Background(), v)
	}
	return nil
}

func (c *crash) hold(d *hosttest.Driver) error {
	return c.step(d, func(ctx context.Context, v lvm.Volume) error {
		_, err := d.Hold(ctx, v.ID, v.UUID, crashMove)
		return err
	})
}

func (c *crash) makeHeld(d *hosttest.Driver) {
	c.makeVictim(d)
	hosttest.Must(c.t, c.hold(d))
}

func (c *crash) checkHeld(d *hosttest.Driver) {
	c.mustBe(d, lvm.StateMoving)
	hosttest.Must(c.t, c.releaseHeld(d))
	c.checkReleased(d)
}

func (c *crash) releaseHeld(d *hosttest.Driver) error {
	return c.step(d, func(ctx context.Context, v lvm.Volume) error { return d.ReleaseHeld(ctx, v.ID, v.UUID) })
}

// checkReleased: pods can use it.
func (c *crash) checkReleased(d *hosttest.Driver) {
	v := c.mustBe(d, lvm.StateReady)
	c.volume(d, c.name())
	d.MustRemove(c.t, v)
	c.nothingBut(1)
}

func (c *crash) handOver(d *hosttest.Driver) error {
	return c.step(d, func(ctx context.Context, v lvm.Volume) error { return d.HandOver(ctx, v.ID, v.UUID, crashMove) })
}

func (c *crash) makeMoved(d *hosttest.Driver) {
	c.makeHeld(d)
	hosttest.Must(c.t, c.handOver(d))
}

func (c *crash) checkMoved(d *hosttest.Driver) {
	c.mustBe(d, lvm.StateMoved)
	hosttest.Must(c.t, c.removeMoved(d))
	c.checkRemoved(d)
}

func (c *crash) removeMoved(d *hosttest.Driver) error {
	err := c.step(d, func(ctx context.Context, v lvm.Volume) error { return d.RemoveMoved(ctx, v.ID, v.UUID) })
	d.WaitWiped(c.t)
	return err
}

func (c *crash) receive(d *hosttest.Driver) error {
	_, err := d.Receive(context.Background(), lvm.Incoming{Spec: c.spec(), Move: crashMove})
	return err
}

func (c *crash) makeReceiving(d *hosttest.Driver) { hosttest.Must(c.t, c.receive(d)) }

func (c *crash) noteCopied(d *hosttest.Driver) error {
	return c.step(d, func(ctx context.Context, v lvm.Volume) error {
		return d.NoteCopied(ctx, v.ID, v.UUID, crashMove, 4*lvm.MiB)
	})
}

// checkReceiving: the copy can go on, and be discarded.
func (c *crash) checkReceiving(d *hosttest.Driver) {
	v := c.mustBe(d, lvm.StateReceiving)
	if _, err := d.MoveDevice(context.Background(), v.ID, v.UUID, crashMove); err != nil {
		c.t.Error(err)
	}
	hosttest.Must(c.t, c.discard(d))
	c.nothingBut(1)
}

func (c *crash) received(d *hosttest.Driver) error {
	return c.step(d, func(ctx context.Context, v lvm.Volume) error {
		_, err := d.Received(ctx, v.ID, v.UUID, crashMove)
		return err
	})
}

func (c *crash) makeReceived(d *hosttest.Driver) {
	c.makeReceiving(d)
	hosttest.Must(c.t, c.received(d))
}

func (c *crash) checkReceived(d *hosttest.Driver) {
	c.mustBe(d, lvm.StateReceived)
	hosttest.Must(c.t, c.discard(d))
	c.nothingBut(1)
}

func (c *crash) finish(d *hosttest.Driver) error {
	return c.step(d, func(ctx context.Context, v lvm.Volume) error {
		_, err := d.Finish(ctx, v.ID, v.UUID)
		return err
	})
}

func (c *crash) discard(d *hosttest.Driver) error {
	err := c.step(d, func(ctx context.Context, v lvm.Volume) error { return d.Discard(ctx, v.ID, v.UUID) })
	d.WaitWiped(c.t)
	return err
}
