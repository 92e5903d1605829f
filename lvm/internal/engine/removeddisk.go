package engine

import (
	"context"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// UnmappedPVs returns the physical volumes of an active volume that are present and that its device does not map, and the names of
// the removed disks that it maps. A disk that is removed while a volume on it is active returns with another name, and the volume's
// device still maps the removed one.
func (e *Engine) UnmappedPVs(g lvm.Group, lv lvm.LV, path string) (pvs []lvm.PV, removed []string, err error) {
	below, removed, err := e.Machine.Kernel.DisksBelow(path)
	if err != nil || len(removed) == 0 || alloc.IsMoving(g, lv) {
		return nil, nil, err
	}
	used := lvm.PVsBelow(g, lv)
	for _, pv := range g.PVs {
		present := !pv.Missing && !pv.Unresponsive && len(pv.DuplicateDevices) == 0 && pv.Device != ""
		if present && used[pv.UUID] && !slices.Contains(below, pv.Device) {
			pvs = append(pvs, pv)
		}
	}
	return pvs, removed, nil
}

// MapPresentDisks makes the device of an active volume map the volume's physical volumes again, after a disk was removed and is
// back. A RAID volume may be in use; any other is activated again once it is unused, because its users have seen errors.
func (e *Engine) MapPresentDisks(ctx context.Context, id lvm.ID) error {
	s, unlock, err := e.Locked(ctx, id.VG, "mapping the disks of volume "+id.LV+" again", e.ReadDisks)
	if err != nil {
		return err
	}
	defer unlock()
	g, lv, v, err := s.FindVolume(id)
	if err != nil {
		return err
	}
	path, active, err := e.FindDevice(ctx, id, v.UUID)
	if err != nil || !active {
		return err
	}
	_, err = e.mapPresentDisks(ctx, g, lv, v, path)
	return err
}

// mapPresentDisks is MapPresentDisks under the group's lock. It returns the volume's device.
func (e *Engine) mapPresentDisks(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume, path string) (string, error) {
	pvs, removed, err := e.UnmappedPVs(g, lv, path)
	if err != nil || len(pvs) == 0 {
		return path, err
	}
	failure := e.reactivate(ctx, g, lv)
	if lvm.KindOf(failure) == lvm.KindInUse {
		e.Log.Warn("a volume in use maps a removed disk; the driver activates it again once it is unused", "volume", v.ID.String(), "removed", removed, "error", failure)
		return path, nil
	}
	path, active, err := e.FindDevice(ctx, v.ID, v.UUID)
	if err != nil {
		return "", err
	}
	if !active {
		return "", lvm.Errorf(lvm.KindOf(failure), "volume %s/%s maps the removed disk %s, and cannot be activated again: %w", g.Name, lv.Name, strings.Join(removed, ", "), OrNoEffect(failure))
	}
	left, _, err := e.UnmappedPVs(g, lv, path)
	if err == nil && len(left) > 0 {
		err = lvm.Errorf(lvm.KindOf(failure), "volume %s/%s still maps the removed disk %s instead of %s: %w", g.Name, lv.Name, strings.Join(removed, ", "), pvs[0].Device, OrNoEffect(failure))
	}
	if err == nil {
		e.Log.Warn("a volume maps its disk again, which was removed and is back", "volume", v.ID.String(), "removed", removed, "device", pvs[0].Device)
	}
	return path, err
}
