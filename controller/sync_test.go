package controller

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestSourceIsSyncedBeforeCopy: a snapshot and a clone sync their source before LVM copies it, and do not begin if that fails; a restore
// has nothing to sync.
func TestSourceIsSyncedBeforeCopy(t *testing.T) {
	s, node := newWideServer(t)
	var synced []string
	var fails error
	s.sync = func(_ context.Context, source lvm.ID) error {
		synced = append(synced, source.String())
		return fails
	}
	origin := mustCreate(t, s, in("origin", "layout", "thin")).GetVolumeId()
	snapshot := mustSnapshot(t, s, "snap", origin)
	mustCreate(t, s, copyRequest("clone", origin, 2<<30))
	mustCreate(t, s, copyRequest("restored", snapshot.GetSnapshotId(), 2<<30))
	if !slices.Equal(synced, []string{origin, origin}) {
		t.Errorf("synced %v, not twice %s", synced, origin)
	}
	before := len(node.Commands())
	fails = lvm.Errorf(lvm.KindBusy, "%w", errors.New("the disk does not respond"))
	_, err := s.CreateSnapshot(t.Context(), snapshotRequest("snap-2", origin))
	expectKind(t, err, lvm.KindBusy, "does not respond")
	_, err = s.CreateVolume(t.Context(), copyRequest("clone-2", origin, 2<<30))
	expectKind(t, err, lvm.KindBusy, "does not respond")
	if after := node.Commands(); len(after) != before {
		t.Errorf("LVM ran %v", after[before:])
	}
}
