package conformance

import (
	"fmt"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

func roundID(n int) string { return fmt.Sprintf("%032x", 0xa0+n) }

// testRounds: rounds exist only while a move needs them, count in their pool, and are nothing that a user sees or can name.
func testRounds(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	ctx := t.Context()
	v := d.MustCreate(t, b.Thin("busy", 12*lvm.MiB, lvm.ID{}))
	device := d.MustActivate(t, v)
	release := b.Hold(t, device)
	spec := func(n int) lvm.RoundSpec {
		return lvm.RoundSpec{Move: roundID(n), Source: v.ID, SourceUUID: v.UUID, Number: n, Before: lvm.Bytes(n) * lvm.MiB}
	}
	hosttest.Refused(t, "a round without a move", lvm.KindConflict)(d.TakeRound(ctx, spec(1)))
	hosttest.Must(t, d.NoteMove(ctx, v.ID, v.UUID, "a record"))
	before := d.MustCapacity(t, v.Class)
	for range 2 {
		r, err := d.TakeRound(ctx, spec(1))
		hosttest.Must(t, err)
		if r.State != lvm.StateReady || r.RoundSpec != spec(1) || r.Size != v.Size {
			t.Errorf("a round: %+v", r)
		}
	}
	if after := d.MustCapacity(t, v.Class); after.Available >= before.Available {
		t.Errorf("a round takes nothing of %s", before.Available)
	}
	unseen(t, d, v, lvm.ID{VG: v.ID.VG, LV: lvm.RoundName(roundID(1))})
	d = b.Start(t)
	b.Write(t, device, 3)
	other := spec(1)
	other.Number = 7
	hosttest.Refused(t, "another round of that name", lvm.KindExists)(d.TakeRound(ctx, other))
	_, err := d.TakeRound(ctx, spec(2))
	hosttest.Must(t, err)
	for range 2 {
		changes, err := d.Changes(ctx, v.ID, v.UUID, roundID(1), roundID(2))
		hosttest.Must(t, err)
		if size := changes.Size(); size == 0 || size > v.Size {
			t.Errorf("%s changed", size)
		}
	}
	hosttest.Refused(t, "what changed since a round that is not", lvm.KindNotFound)(d.Changes(ctx, v.ID, v.UUID, roundID(3), roundID(2)))
	hosttest.Refused(t, "what changed in a volume that is not held", lvm.KindConflict)(d.Changes(ctx, v.ID, v.UUID, roundID(2), firstMove))
	if path, err := d.MoveDevice(ctx, v.ID, v.UUID, roundID(2)); err != nil || !b.TakesNoWrites(t, path) {
		t.Errorf("the device of a round takes writes: %v", err)
	}
	dropFirst(t, d)
	release()
	_, err = d.Hold(ctx, v.ID, v.UUID, firstMove)
	hosttest.Must(t, err)
	d = b.Start(t)
	if _, err := d.Changes(ctx, v.ID, v.UUID, roundID(2), firstMove); err != nil {
		t.Error(err)
	}
	hosttest.Must(t, d.ReleaseHeld(ctx, v.ID, v.UUID))
	hosttest.Must(t, d.DropUnneededRounds(ctx))
	if n := len(roundsOf(t, d)); n != 1 {
		t.Errorf("while the move is noted, there are %d rounds", n)
	}
	hosttest.Must(t, d.NoteMove(ctx, v.ID, v.UUID, ""))
	d.Counted(t, "to remove a round that no move needs", 1, func() { hosttest.Must(t, d.DropUnneededRounds(ctx)) })
	d.Counted(t, "to look for such rounds", 0, func() { hosttest.Must(t, d.DropUnneededRounds(ctx)) })
	if n := len(roundsOf(t, d)); n != 0 {
		t.Errorf("without a move, there are %d rounds", n)
	}
	hosttest.Must(t, d.Delete(ctx, v.ID))
	d.WaitWiped(t)
	b.RemovePool(t)
}

func roundsOf(t *testing.T, d *hosttest.Driver) []lvm.Round {
	t.Helper()
	rounds, err := d.Rounds(t.Context())
	hosttest.Must(t, err)
	return rounds
}

// dropFirst removes the first of two rounds.
func dropFirst(t *testing.T, d *hosttest.Driver) {
	t.Helper()
	rounds := roundsOf(t, d)
	if len(rounds) != 2 {
		t.Fatalf("rounds: %+v", rounds)
	}
	for range 2 {
		hosttest.Must(t, d.DropRound(t.Context(), rounds[0].ID, rounds[0].UUID))
	}
	if left := roundsOf(t, d); len(left) != 1 || left[0].Move != rounds[1].Move {
		t.Errorf("left: %+v", left)
	}
}

// unseen checks that a round is no volume and no snapshot, and cannot become one.
func unseen(t *testing.T, d *hosttest.Driver, of lvm.Volume, round lvm.ID) {
	t.Helper()
	ctx := t.Context()
	if n := len(d.Snapshots(t)); n != 0 {
		t.Errorf("%d snapshots are listed", n)
	}
	if n := len(d.Volumes(t)); n != 1 {
		t.Errorf("%d volumes are listed", n)
	}
	inventory := hosttest.Report(d.Host)
	if len(inventory.Snapshots) != 0 || len(inventory.Volumes) != 1 || len(inventory.Damaged) != 0 {
		t.Errorf("reported: %d snapshots, %d volumes, damaged %q", len(inventory.Snapshots), len(inventory.Volumes), inventory.Damaged)
	}
	hosttest.Refused(t, "look up", lvm.KindNotManaged)(d.Lookup(ctx, round))
	hosttest.WantKind(t, "delete", d.Delete(ctx, round), lvm.KindNotManaged)
	hosttest.WantKind(t, "delete as a snapshot", d.DeleteSnapshot(ctx, round), lvm.KindNotManaged)
	hosttest.Refused(t, "snapshot", lvm.KindNotManaged)(d.CreateSnapshot(ctx, lvm.SnapshotSpec{Name: "of a round", Source: round}))
	hosttest.Refused(t, "adopt", lvm.KindConflict)(d.Adopt(ctx, of.Group, round.LV, "adopted", ""))
	spec := lvm.Spec{Name: "copy of a round", Class: of.Class, Required: of.Size, Source: round}
	hosttest.Refused(t, "copy", lvm.KindNotFound)(d.Create(ctx, spec))
}

// testRoundsReceived: a copy goes on from the round that the target has completely, and from nothing else.
func testRoundsReceived(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	ctx := t.Context()
	in := func(move, since string) lvm.Incoming {
		return lvm.Incoming{Spec: b.Thin("comes", 12*lvm.MiB, lvm.ID{}), Move: move, Since: since}
	}
	var v lvm.Volume
	receive := func(move, since, base string, copied lvm.Bytes) {
		t.Helper()
		for range 2 {
			var err error
			if v, err = d.Receive(ctx, in(move, since)); err != nil || v.Move != move || v.Base != base || v.Copied != copied || v.State != lvm.StateReceiving {
				t.Errorf("receive %s since %q: %+v, %v", move, since, v, err)
			}
			d = b.Start(t)
		}
	}
	whole := func(move string) {
		t.Helper()
		for range 2 {
			if now, err := d.RoundReceived(ctx, v.ID, v.UUID, move); err != nil || now.Base != move || now.Copied != 0 {
				t.Errorf("received %s: %+v, %v", move, now, err)
			}
		}
	}
	note := func(move string) { t.Helper(); hosttest.Must(t, d.NoteCopied(ctx, v.ID, v.UUID, move, 4*lvm.MiB)) }
	one, two, three := roundID(1), roundID(2), roundID(3)

	receive(one, "", "", 0)
	note(one)
	receive(one, "", "", 4*lvm.MiB)
	hosttest.Refused(t, "a round that is not received", lvm.KindConflict)(d.RoundReceived(ctx, v.ID, v.UUID, two))
	receive(two, one, "", 0) // the first was incomplete
	whole(two)
	receive(two, one, two, 0)
	receive(three, two, two, 0)
	note(three)
	receive(three, two, two, 4*lvm.MiB)
	receive(three, one, "", 0) // the source does not know what changed since the second
	receive(two, "", "", 0)
	whole(two)
	receive(three, two, two, 0)
	receive(firstMove, two, "", 0) // a part of the third was copied over the second
	note(firstMove)
	whole(firstMove)
	receive(secondMove, firstMove, firstMove, 0)
	got, err := d.Received(ctx, v.ID, v.UUID, secondMove)
	if err != nil || got.State != lvm.StateReceived || got.Base != "" {
		t.Errorf("received: %+v, %v", got, err)
	}
	hosttest.Refused(t, "a round of a complete copy", lvm.KindConflict)(d.RoundReceived(ctx, v.ID, v.UUID, secondMove))
	hosttest.Must(t, d.Discard(ctx, v.ID, v.UUID))
	d.WaitWiped(t)
	b.RemovePool(t)
}
