//go:build reallvm

package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// roundOps are the operations on the rounds of a volume that is about to move.
var roundOps = []crashOp{
	{name: "round", setUp: (*crash).makeLeaving, do: (*crash).takeRound, check: (*crash).checkRound},
	{name: "comparison of rounds", setUp: (*crash).makeLeaving, prepare: (*crash).makeRounds, do: (*crash).compareRounds, check: (*crash).checkComparison},
	{name: "round removal", setUp: (*crash).makeLeaving, prepare: (*crash).makeRounds, do: (*crash).dropRounds, check: (*crash).checkNoRound},
}

// makeLeaving creates a volume with a pattern whose move is noted.
func (c *crash) makeLeaving(d *hosttest.Driver) {
	c.makeOrigin(d)
	v, err := c.find(d, "origin")
	hosttest.Must(c.t, err)
	hosttest.Must(c.t, d.NoteMove(context.Background(), v.ID, v.UUID, "a record"))
}

func round(n int) string { return fmt.Sprintf("%032d", n) }

func (c *crash) takeNumber(d *hosttest.Driver, n int) error {
	v, err := c.find(d, "origin")
	if err != nil {
		return err
	}
	_, err = d.TakeRound(context.Background(), lvm.RoundSpec{Move: round(n), Source: v.ID, SourceUUID: v.UUID, Number: n})
	return err
}

func (c *crash) takeRound(d *hosttest.Driver) error { return c.takeNumber(d, 1) }

func (c *crash) makeRounds(d *hosttest.Driver) {
	hosttest.Must(c.t, c.takeNumber(d, 1))
	hosttest.Must(c.t, c.takeNumber(d, 2))
}

func (c *crash) dropRounds(d *hosttest.Driver) error {
	rounds, err := d.Rounds(context.Background())
	for _, r := range rounds {
		err = errors.Join(err, d.DropRound(context.Background(), r.ID, r.UUID))
	}
	return err
}

// checkRound: the round has the volume's content.
func (c *crash) checkRound(d *hosttest.Driver) {
	v, err := c.find(d, "origin")
	hosttest.Must(c.t, err)
	device, err := d.MoveDevice(context.Background(), v.ID, v.UUID, round(1))
	hosttest.Must(c.t, err)
	c.checkPattern(device)
	hosttest.Must(c.t, c.dropRounds(d))
	c.checkNoRound(d)
}

func (c *crash) checkNoRound(d *hosttest.Driver) {
	rounds, err := d.Rounds(context.Background())
	if err != nil || len(rounds) > 0 {
		c.t.Errorf("rounds: %+v, %v", rounds, err)
	}
	_, device := c.volume(d, "origin")
	c.checkPattern(device)
	c.nothingBut(1)
}

func (c *crash) compareRounds(d *hosttest.Driver) error {
	v, err := c.find(d, "origin")
	if err != nil {
		return err
	}
	changes, err := d.Changes(context.Background(), v.ID, v.UUID, round(1), round(2))
	if err == nil && changes.Size() != 0 {
		err = fmt.Errorf("%s changed, want nothing", changes.Size())
	}
	return err
}

// checkMetadata checks that the pool has no metadata snapshot, if it is active.
func (c *crash) checkMetadata() {
	name := strings.ReplaceAll(crashGroup, "-", "--") + "-" + strings.ReplaceAll(lvm.DefaultPool, "-", "--") + "-tpool"
	if !strings.Contains(reallvm.Dmsetup(c.t, "ls"), name) {
		return
	}
	if status := strings.Fields(reallvm.Dmsetup(c.t, "status", name)); len(status) < 7 || status[6] != "-" {
		c.t.Errorf("the pool has a metadata snapshot: %q", status)
	}
}

// checkComparison: nothing is left of the comparison.
func (c *crash) checkComparison(d *hosttest.Driver) {
	c.checkMetadata()
	hosttest.Must(c.t, c.dropRounds(d))
	c.checkNoRound(d)
}
