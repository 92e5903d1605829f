package engine

import (
	"context"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// CheckUnused refuses a volume in use, before anything changes: lvchange can fail and yet commit a tag, and lvremove removes the
// snapshots of an origin without a warning. done completes the message "cannot be ...".
func (e *Engine) CheckUnused(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume, done string) error {
	switch {
	case len(lv.UsedBy) > 0:
		return lvm.Errorf(lvm.KindInUse, "volume %s/%s cannot be %s while %s depends on it: remove that first", v.Group, lv.Name, done, strings.Join(lv.UsedBy, ", "))
	case alloc.IsMoving(g, lv):
		return lvm.Errorf(lvm.KindBusy, "volume %s/%s cannot be %s: %w", v.Group, lv.Name, done, alloc.ErrMoving)
	}
	path, active, err := e.FindDevice(ctx, v.ID, v.UUID)
	if err != nil || !active {
		return err
	}
	if err := e.Machine.Kernel.CheckUnused(ctx, path); err != nil {
		return lvm.Errorf(lvm.KindOf(err), "volume %s/%s cannot be %s: %w", v.Group, lv.Name, done, err)
	}
	return nil
}
