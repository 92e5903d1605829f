//go:build reallvm

package moving

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/move"
)

// TestFullCopy_RealLVM copies a snapshot into a larger volume while its origin changes and moves away, and ends both drivers at random moments: the volume has
// what the snapshot has, and zeroes behind. The snapshot has a device only meanwhile.
func TestFullCopy_RealLVM(t *testing.T) { newSides(t).fullCopy(lvm.EncryptionNone) }

// TestEncryptedFullCopy_RealLVM does the same with an encrypted volume: the bytes of the logical volume arrive.
func TestEncryptedFullCopy_RealLVM(t *testing.T) { newSides(t).fullCopy(lvm.EncryptionLUKS2) }

func (s *sides) fullCopy(encryption lvm.Encryption) {
	s.t.Helper()
	s.rate = 16 * lvm.MiB
	s.start()
	ctx := s.t.Context()
	spec := s.b.Thin("origin", 40*lvm.MiB, lvm.ID{})
	spec.Class.Encryption = encryption
	origin := s.d.MustCreate(s.t, spec)
	device, want := s.activate(origin), content(origin.DeviceSize())
	s.write(device, want)
	sn := s.d.MustSnapshot(s.t, "snapshot", origin.ID)
	s.write(device, bytes.Repeat([]byte("changed "), 1<<20))

	restored := s.b.Thin("restored", 48*lvm.MiB, lvm.ID{VG: "elsewh-ere0-0000-0000-0000-0000-000000", LV: sn.ID.LV}) // one node stands for two
	restored.Class.Encryption, restored.Class.Group = encryption, targetGroup
	held := ""
	for _, leave := range []func() error{
		func() error {
			offer, err := s.source.Hold(ctx, origin.ID, origin.UUID)
			held = offer.Move
			return err
		},
		func() error { return s.source.HandOver(ctx, origin.ID, origin.UUID, held) },
		func() error { return s.source.Remove(ctx, origin.ID, origin.UUID) },
	} {
		s.fetch(sn, restored, func(p move.Progress) bool { return p.Running || received(p) })
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
		hosttest.Must(s.t, leave())
		s.start()
	}
	p := s.fetch(sn, restored, received)
	hosttest.WantKind(s.t, "look it up before its end", lookUp(s, p.Volume.ID), lvm.KindConflict)
	_, err := s.target.Finish(ctx, p.Volume.ID, p.Volume.UUID)
	hosttest.Must(s.t, err)
	now := s.d.MustCreate(s.t, restored)
	got := reallvm.ReadAt(s.t, s.activate(now), 0, int(now.DeviceSize()))
	if now.UUID != p.Volume.UUID || !bytes.Equal(got[:len(want)], want) || len(bytes.Trim(got[len(want):], "\x00")) > 0 {
		s.t.Errorf("restored as %+v, and its content is the snapshot's: %v", now, bytes.Equal(got[:len(want)], want))
	}
	s.isReleased(sn)
	hosttest.Must(s.t, s.d.DeleteSnapshot(ctx, sn.ID))
	hosttest.Must(s.t, s.d.Delete(ctx, now.ID))
	s.d.WaitWiped(s.t)
}

func lookUp(s *sides, id lvm.ID) error {
	_, err := s.d.Lookup(s.t.Context(), id)
	return err
}

// isReleased waits until a snapshot has no device: the source closes it when it has sent the last byte.
func (s *sides) isReleased(sn lvm.Snapshot) {
	s.t.Helper()
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, active, err := s.d.Device(s.t.Context(), sn.ID, sn.UUID)
		if hosttest.Must(s.t, err); !active {
			return
		}
		if time.Since(start) > time.Minute {
			s.t.Fatal("the snapshot is still active")
		}
	}
}

// fetch calls Fetch until the progress is as wanted.
func (s *sides) fetch(sn lvm.Snapshot, spec lvm.Spec, until func(move.Progress) bool) move.Progress {
	s.t.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		p, err := s.target.Fetch(s.t.Context(), s.source.Offer(sn), move.ClaimOf("shop", "data", "uid"), spec)
		hosttest.Must(s.t, err)
		if until(p) {
			return p
		}
		if time.Since(start) > 5*time.Minute {
			s.t.Fatalf("no such outcome: %+v", p)
		}
	}
}
