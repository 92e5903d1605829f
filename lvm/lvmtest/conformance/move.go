package conformance

import (
	"os"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

const (
	firstMove  = "00000000000000000000000000000001"
	secondMove = "00000000000000000000000000000002"
)

// testMoveSource: no pod can use a held volume until it is released or handed over; each step can be repeated, survives a restart, and refuses what does
// not follow.
func testMoveSource(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	v := d.MustCreate(t, b.Spec("leaves", 12*lvm.MiB))
	ctx := t.Context()
	device := d.MustActivate(t, v)
	hosttest.Must(t, d.NoteMove(ctx, v.ID, v.UUID, "a record"))
	d = b.Start(t)
	if now, err := d.Lookup(ctx, v.ID); err != nil || now.Record != "a record" {
		t.Errorf("noted before the volume is held: %+v, %v", now, err)
	}
	release := b.Hold(t, device)
	hosttest.Refused(t, "hold an open one", lvm.KindInUse)(d.Hold(ctx, v.ID, v.UUID, firstMove))
	release()
	for range 2 {
		held, err := d.Hold(ctx, v.ID, v.UUID, firstMove)
		hosttest.Must(t, err)
		if held.State != lvm.StateMoving || held.Move != firstMove {
			t.Errorf("held: %+v", held)
		}
		d = b.Start(t)
	}
	if held, err := d.Hold(ctx, v.ID, v.UUID, secondMove); err != nil || held.Move != firstMove {
		t.Errorf("held again: %+v, %v", held, err)
	}
	refusesUse(t, d, v, lvm.KindConflict)
	if _, err := d.MoveDevice(ctx, v.ID, v.UUID, firstMove); err != nil {
		t.Error(err)
	}
	record := strings.Repeat(`{"é"}`, 300)
	hosttest.Must(t, d.NoteMove(ctx, v.ID, v.UUID, record))
	hosttest.Must(t, d.ReleaseHeld(ctx, v.ID, v.UUID))
	hosttest.Must(t, d.ReleaseHeld(ctx, v.ID, v.UUID))
	if now, err := d.Lookup(ctx, v.ID); err != nil || now.Record != record || now.FormatMark != v.FormatMark {
		t.Errorf("released: %+v, %v", now, err)
	}
	hosttest.Must(t, d.NoteMove(ctx, v.ID, v.UUID, ""))
	hosttest.WantKind(t, "hand over a ready one", d.HandOver(ctx, v.ID, v.UUID, firstMove), lvm.KindConflict)
	hosttest.WantKind(t, "remove a ready one", d.RemoveMoved(ctx, v.ID, v.UUID), lvm.KindConflict)
	_, err := d.Hold(ctx, v.ID, v.UUID, secondMove)
	hosttest.Must(t, err)
	hosttest.WantKind(t, "hand over for another move", d.HandOver(ctx, v.ID, v.UUID, firstMove), lvm.KindConflict)
	hosttest.Must(t, d.HandOver(ctx, v.ID, v.UUID, secondMove))
	d = b.Start(t)
	hosttest.Must(t, d.HandOver(ctx, v.ID, v.UUID, secondMove))
	hosttest.WantKind(t, "release a moved one", d.ReleaseHeld(ctx, v.ID, v.UUID), lvm.KindConflict)
	refusesUse(t, d, v, lvm.KindConflict)
	adminMakesReady(t, b, d, v, lvm.StateMoved)
	hosttest.Must(t, d.RemoveMoved(ctx, v.ID, v.UUID))
	hosttest.Must(t, d.RemoveMoved(ctx, v.ID, v.UUID))
	d.WaitWiped(t)
}

// adminMakesReady checks the commands by which an admin makes one side of a move, in this state, the volume (docs/howto/move.md).
func adminMakesReady(t *testing.T, b hosttest.Fixture, d *hosttest.Driver, v lvm.Volume, from lvm.VolumeState) {
	t.Helper()
	const record = `{"policy":"Delete"}`
	hosttest.Must(t, d.NoteMove(t.Context(), v.ID, v.UUID, record))
	command := []string{"lvchange", "--deltag", "nodelvm.state=" + string(from), "--addtag", "nodelvm.state=ready"}
	for _, tag := range lvm.MoveTags(lvm.Volume{State: from, Record: record}) {
		if strings.HasPrefix(tag, "nodelvm.record") {
			command = append(command, "--deltag", tag)
		}
	}
	b.Admin(t, append(command, b.Group+"/"+v.ID.LV)...)
	if now, err := d.Lookup(t.Context(), v.ID); err != nil || now.State != lvm.StateReady || now.Record != "" {
		t.Errorf("%s, and an admin made it ready: %+v, %v", from, now, err)
	}
	d.MustActivate(t, v)
	b.Admin(t, "lvchange", "--deltag", "nodelvm.state=ready", "--addtag", "nodelvm.state="+string(from), b.Group+"/"+v.ID.LV)
}

// refusesUse checks that nothing else than a step of the move changes or uses a volume.
func refusesUse(t *testing.T, d *hosttest.Driver, v lvm.Volume, kind lvm.Kind) {
	t.Helper()
	ctx := t.Context()
	hosttest.Refused(t, "activate", kind)(d.Activate(ctx, v.ID, v.UUID))
	hosttest.Refused(t, "look up", kind)(d.Lookup(ctx, v.ID))
	hosttest.Refused(t, "extend", kind)(d.Extend(ctx, v.ID, v.Size+4*lvm.MiB, 0))
	hosttest.WantKind(t, "delete", d.Delete(ctx, v.ID), kind)
	delayed := lvm.KindBusy
	if now := hosttest.Report(d.Host); hosttest.InState(now, lvm.StateMoved) > 0 {
		delayed = lvm.KindConflict // for good
	}
	hosttest.Refused(t, "snapshot", delayed)(d.CreateSnapshot(ctx, lvm.SnapshotSpec{Name: "of a moving one", Source: v.ID}))
	hosttest.Refused(t, "create", lvm.KindExists)(d.Create(ctx, lvm.Spec{Name: v.Name, Class: v.Class, Required: v.Size}))
	for _, listed := range d.Volumes(t) {
		if listed.ID == v.ID {
			t.Errorf("listed: %+v", listed)
		}
	}
}

// testMoveTarget: a receiving volume counts as used, belongs to one move, and no pod can use it before Finish.
func testMoveTarget(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	ctx := t.Context()
	for _, spec := range []lvm.Spec{b.Spec("comes", 12*lvm.MiB), b.Thin("comes thin", 12*lvm.MiB, lvm.ID{})} {
		before := d.MustCapacity(t, spec.Class)
		in := lvm.Incoming{Spec: spec, Move: firstMove, FormatMark: 8 * lvm.MiB}
		v, err := d.Receive(ctx, in)
		hosttest.Must(t, err)
		if v.State != lvm.StateReceiving || v.Move != firstMove || v.FormatMark != in.FormatMark || v.Size != spec.Required {
			t.Errorf("received: %+v", v)
		}
		if after := d.MustCapacity(t, spec.Class); after.Available >= before.Available {
			t.Errorf("a receiving volume takes nothing of %s", before.Available)
		}
		hosttest.Must(t, d.NoteCopied(ctx, v.ID, v.UUID, firstMove, 4*lvm.MiB))
		d = b.Start(t)
		if again, err := d.Receive(ctx, in); err != nil || again.UUID != v.UUID || again.Copied != 4*lvm.MiB {
			t.Errorf("again: %+v, %v", again, err)
		}
		refusesUse(t, d, v, lvm.KindConflict)
		hosttest.Refused(t, "finish a receiving one", lvm.KindConflict)(d.Finish(ctx, v.ID, v.UUID))
		other := in
		other.Move = secondMove
		if again, err := d.Receive(ctx, other); err != nil || again.UUID != v.UUID || again.Copied != 0 || again.Move != secondMove {
			t.Errorf("for another move: %+v, %v", again, err)
		}
		hosttest.WantKind(t, "note another move's progress", d.NoteCopied(ctx, v.ID, v.UUID, firstMove, 4*lvm.MiB), lvm.KindConflict)
		hosttest.Refused(t, "receive another move's", lvm.KindConflict)(d.Received(ctx, v.ID, v.UUID, firstMove))
		markOf(t, d, v)
		_, err = d.Received(ctx, v.ID, v.UUID, secondMove)
		hosttest.Must(t, err)
		hosttest.Refused(t, "receive over a complete one", lvm.KindExists)(d.Receive(ctx, in))
		refusesUse(t, d, v, lvm.KindConflict)
		adminMakesReady(t, b, d, v, lvm.StateReceived)
		d = b.Start(t)
		for range 2 {
			ready, err := d.Finish(ctx, v.ID, v.UUID)
			if err != nil || ready.State != lvm.StateReady || ready.FormatMark != in.FormatMark {
				t.Errorf("finished: %+v, %v", ready, err)
			}
		}
		if have, err := d.Receive(ctx, other); err != nil || have.State != lvm.StateReady {
			t.Errorf("received again: %+v, %v", have, err)
		}
		hosttest.WantKind(t, "discard a ready one", d.Discard(ctx, v.ID, v.UUID), lvm.KindConflict)
		d.MustActivate(t, v)
		hosttest.Must(t, d.Delete(ctx, v.ID))
		d.WaitWiped(t)
		v, err = d.Receive(ctx, in)
		hosttest.Must(t, err)
		hosttest.Must(t, d.Discard(ctx, v.ID, v.UUID))
		hosttest.Must(t, d.Discard(ctx, v.ID, v.UUID))
		d.WaitWiped(t)
	}
	b.RemovePool(t)
}

// markOf fails if a format mark is on the volume: only the source's content may have one.
func markOf(t *testing.T, d *hosttest.Driver, v lvm.Volume) {
	t.Helper()
	device, err := d.MoveDevice(t.Context(), v.ID, v.UUID, secondMove)
	hosttest.Must(t, err)
	content, err := os.ReadFile(device)
	if err == nil && strings.Contains(string(content), v.UUID) {
		t.Error("a receiving volume has a format mark")
	}
}
