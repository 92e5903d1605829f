package controller

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestSourceIsPreparedForCopy: a snapshot and a clone prepare their source before LVM copies it, end that afterwards, and do not begin if it
// fails. A restore has nothing to prepare. Neither has a copy that exists, or that of a thick volume, which is refused.
func TestSourceIsPreparedForCopy(t *testing.T) {
	s, node := newWideServer(t)
	var prepared, ended []string
	var fails error
	s.prepareCopy = func(_ context.Context, source lvm.ID) (func(), error) {
		prepared = append(prepared, source.String())
		commands := len(node.Commands())
		return func() {
			if len(node.Commands()) > commands {
				ended = append(ended, source.String())
			}
		}, fails
	}
	origin, thick := mustCreate(t, s, in("origin", "layout", "thin")).GetVolumeId(), mustCreate(t, s, in("thick")).GetVolumeId()
	snapshot := mustSnapshot(t, s, "snap", origin)
	mustCreate(t, s, copyRequest("clone", origin, 2<<30))
	mustCreate(t, s, copyRequest("restored", snapshot.GetSnapshotId(), 2<<30))
	mustSnapshot(t, s, "snap", origin)
	mustCreate(t, s, copyRequest("clone", origin, 2<<30))
	if want := []string{origin, origin}; !slices.Equal(prepared, want) || !slices.Equal(ended, want) {
		t.Errorf("prepared %v and ended %v, not twice %s", prepared, ended, origin)
	}
	before := len(node.Commands())
	fails = lvm.Errorf(lvm.KindBusy, "%w", errors.New("the disk does not respond"))
	_, err := s.CreateSnapshot(t.Context(), snapshotRequest("snap-2", origin))
	expectKind(t, err, lvm.KindBusy, "does not respond")
	_, err = s.CreateVolume(t.Context(), copyRequest("clone-2", origin, 2<<30))
	expectKind(t, err, lvm.KindBusy, "does not respond")
	prepared, fails = nil, nil
	_, err = s.CreateSnapshot(t.Context(), snapshotRequest("snap-3", thick))
	expectKind(t, err, lvm.KindInvalid, "layout linear")
	_, err = s.CreateVolume(t.Context(), copyRequest("clone-3", thick, 2<<30))
	expectKind(t, err, lvm.KindInvalid, "layout linear")
	if len(prepared) > 0 {
		t.Errorf("prepared %v, which LVM does not copy", prepared)
	}
	if after := node.Commands(); len(after) != before {
		t.Errorf("LVM ran %v", after[before:])
	}
}
