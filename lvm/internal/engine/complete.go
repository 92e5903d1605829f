package engine

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// CompleteVolume completes a volume that an earlier process left as creating and may have returned: it activates the volume,
// blanks its beginning and end, where signatures are, as lvcreate does, and tags it as ready. The volume holds no user's data,
// because only a ready volume is handed out. The caller holds the group's lock.
func (e *Engine) CompleteVolume(ctx context.Context, s lvm.State, v lvm.Volume) (lvm.Volume, error) {
	g, err := s.FindGroup(v.ID.VG)
	if err != nil {
		return lvm.Volume{}, err
	}
	if err := lvm.CheckWritable(s, g); err != nil { // the missing disk may have newer metadata
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "cannot complete the unfinished volume %s/%s now: %w", v.Group, v.ID.LV, err)
	}
	path, err := e.activateLocked(ctx, s, v)
	if err != nil {
		return lvm.Volume{}, err
	}
	size := v.DeviceSize()
	if v.Class.Layout != lvm.LayoutThin { // the blocks of a thin volume are blank until written
		if err := e.Machine.Kernel.CheckUnused(ctx, path); err != nil {
			return lvm.Volume{}, lvm.Errorf(lvm.KindOf(err), "cannot complete the unfinished volume %s/%s: %w", v.Group, v.ID.LV, err)
		}
		for _, stretch := range [][2]lvm.Bytes{{0, min(blankHead, size)}, {max(0, size-blankTail), size}} {
			if err := e.Machine.Kernel.Zero(ctx, DeviceAt(v, path), stretch[0], stretch[1], nil); err != nil {
				return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "cannot complete the unfinished volume %s/%s: %w", v.Group, v.ID.LV, err)
			}
		}
	}
	return e.ChangeState(ctx, s, v, lvm.StateReady)
}

// The places of the signatures that libblkid knows: the furthest from the beginning is the last copy of a LUKS2 header, at 4
// MiB; the furthest from the end is the header of an old software RAID, within 128 KiB.
const (
	blankHead = 8 * lvm.MiB
	blankTail = 1 * lvm.MiB
)
