package recovery

import (
	"context"
	"errors"

	"github.com/nodelvm/nodelvm/lvm"
)

// mapPresentDisks makes this cluster's active volumes of a group map the disks that were removed and are back. The error joins those
// of the volumes; a volume in use that is no RAID is none: its next activation does it.
func (r *Recovery) mapPresentDisks(ctx context.Context, g lvm.Group) (failures error) {
	for lv, v := range g.Volumes() {
		if v.Cluster != r.engine.Config.Cluster || v.State != lvm.StateReady {
			continue
		}
		path, active, err := r.engine.FindDevice(ctx, v.ID, v.UUID)
		if err != nil || !active {
			continue
		}
		if pvs, _, err := r.engine.UnmappedPVs(g, lv, path); err != nil || len(pvs) == 0 {
			continue
		}
		if err := r.engine.MapPresentDisks(ctx, v.ID); err != nil {
			r.engine.Log.Error("cannot make a volume map its disk again, which was removed and is back", "volume", v.ID.String(), "error", err)
			failures = errors.Join(failures, err)
		}
	}
	return failures
}
