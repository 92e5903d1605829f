package engine

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// WriteFormatMark writes the format mark of a volume that is not ready yet, if its tag says that it has one. The caller holds the
// group's lock, and tags the volume as ready after that: no pod has used it.
func (e *Engine) WriteFormatMark(ctx context.Context, g lvm.Group, v lvm.Volume) error {
	if v.FormatMark == 0 {
		return nil
	}
	path, err := e.activateLocked(ctx, lvm.State{Groups: []lvm.Group{g}}, v)
	if err != nil {
		return err
	}
	if err := e.Machine.Kernel.Write(DeviceAt(v, path), lvm.FormatMark(v.UUID), v.FormatMark); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot write the format mark of volume %s/%s, without which the driver would never format it: %w", g.Name, v.ID.LV, err)
	}
	return nil
}
