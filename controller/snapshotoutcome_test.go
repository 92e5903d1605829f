package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// laterSnapshots are what may be asked for the second time, under the name of a snapshot that is there.
func laterSnapshots(other, thick string) map[string]func(*csi.CreateSnapshotRequest) {
	of := func(volume string) func(*csi.CreateSnapshotRequest) {
		return func(r *csi.CreateSnapshotRequest) { r.SourceVolumeId = volume }
	}
	return map[string]func(*csi.CreateSnapshotRequest){
		"the class has a parameter": func(r *csi.CreateSnapshotRequest) { r.Parameters["size"] = "1Gi" },
		"of another volume":         of(other),
		"of a thick volume":         of(thick),
		"of another node's volume":  of(elsewhere),
		"of no volume":              of(""),
		"of what is no handle":      of("garbage"),
	}
}

// Whatever is asked for later, an error does not let csi-snapshotter forget a snapshot that it does not know of.
func TestSnapshotErrorWhileItMayExist(t *testing.T) {
	for name := range laterSnapshots("", "") {
		t.Run(name, func(t *testing.T) {
			s, node := newWideServer(t)
			volume := mustCreate(t, s, in("v", "layout", "thin")).GetVolumeId()
			other := mustCreate(t, s, in("other", "layout", "thin")).GetVolumeId()
			thick := mustCreate(t, s, in("thick")).GetVolumeId()
			taken := mustSnapshot(t, s, "snap", volume)
			s = restarted(t, s, node)
			before := len(node.Commands())
			later := snapshotRequest("snap", volume)
			laterSnapshots(other, thick)[name](later)
			_, err := s.CreateSnapshot(t.Context(), later)
			expectKind(t, err, lvm.KindBusy, "vg/s-", "kubectl nodelvm orphans")
			if n := len(node.Commands()) - before; n != 0 {
				t.Errorf("%d LVM commands were run", n)
			}
			if again := mustSnapshot(t, s, "snap", volume); again.GetSnapshotId() != taken.GetSnapshotId() {
				t.Errorf("taken as %s, and found as %s", taken.GetSnapshotId(), again.GetSnapshotId())
			}
			// Now its caller knows of it.
			_, err = s.CreateSnapshot(t.Context(), later)
			if kind := lvm.KindOf(err); !slices.Contains([]lvm.Kind{lvm.KindExists, lvm.KindInvalid, lvm.KindNotFound}, kind) {
				t.Errorf("of a snapshot that its caller knows: kind %d, %v", kind, err)
			}
		})
	}
}

// failingSnapshots take the first snapshot in their own way.
type failingSnapshots struct {
	Snapshots
	first func() error
}

func (f *failingSnapshots) CreateSnapshot(ctx context.Context, spec lvm.SnapshotSpec) (lvm.Snapshot, error) {
	if f.first == nil {
		return f.Snapshots.CreateSnapshot(ctx, spec)
	}
	first := f.first
	f.first = nil
	return lvm.Snapshot{}, first()
}

// A snapshot's request ends without an answer, or panics, while a disk goes away: nothing final is said before the disk is back.
func TestSnapshotErrorWhileAbsenceIsUnproven(t *testing.T) {
	for name, first := range map[string]func() error{
		"no answer": func() error { return lvm.Errorf(lvm.KindBusy, "the operation continues") },
		"a panic":   func() error { panic("index out of range") },
	} {
		t.Run(name, func(t *testing.T) {
			s, node := newWideServer(t)
			volume := mustCreate(t, s, in("v", "layout", "thin")).GetVolumeId()
			s.snapshots = &failingSnapshots{s.snapshots, first}
			missing := func(is bool) {
				node.Change("vg", func(g *lvm.Group) { g.PVs[5].Missing = is })
			}
			missing(true)
			survive(func() {
				_, err := s.CreateSnapshot(t.Context(), snapshotRequest("snap", volume))
				expectKind(t, err, lvm.KindBusy)
			})
			wrong := snapshotRequest("snap", volume)
			wrong.Parameters["size"] = "1Gi"
			_, err := s.CreateSnapshot(t.Context(), wrong)
			expectKind(t, err, lvm.KindBusy, "vg", `"size"`)
			wrong.Name = "never-asked-for"
			_, err = s.CreateSnapshot(t.Context(), wrong)
			expectKind(t, err, lvm.KindInvalid)
			missing(false)
			wrong.Name = "snap"
			_, err = s.CreateSnapshot(t.Context(), wrong)
			expectKind(t, err, lvm.KindInvalid)
		})
	}
}

// survive runs what may panic.
func survive(run func()) {
	defer func() { _ = recover() }()
	run()
}

// unreadableSnapshots are on disks that cannot be read.
type unreadableSnapshots struct{ Snapshots }

func (unreadableSnapshots) SnapshotPresence(context.Context, string) (lvm.SnapshotPresence, error) {
	return lvm.SnapshotPresence{}, lvm.Errorf(lvm.KindBusy, "whether it is there cannot be told: %w", errors.New("input/output error"))
}

func TestSnapshotErrorWithUnreadableDisks(t *testing.T) {
	s, _ := newWideServer(t)
	s.snapshots = unreadableSnapshots{s.snapshots}
	_, err := s.CreateSnapshot(t.Context(), snapshotRequest("snap", "garbage"))
	expectKind(t, err, lvm.KindBusy, "input/output error", "garbage")
}

// The first request's caller has gone, and lvcreate still runs.
func TestSnapshotErrorWhileLvcreateRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, hold, release := heldServer(t, nil)
		s.cluster = nil
		thin := wanted()
		thin.Parameters["layout"] = "thin"
		volume := mustCreate(t, s, thin).GetVolumeId()
		hold()
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := s.CreateSnapshot(ctx, snapshotRequest("snap", volume))
			first <- err
		}()
		synctest.Wait()
		cancel()
		expectKind(t, <-first, lvm.KindBusy)
		wrong := snapshotRequest("snap", volume)
		wrong.Parameters["size"] = "1Gi"
		_, err := s.CreateSnapshot(t.Context(), wrong)
		expectKind(t, err, lvm.KindBusy, "in flight")
		release()
	})
}
