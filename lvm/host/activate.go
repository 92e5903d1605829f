package host

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// activating identifies an Activate request among the operations in flight.
type activating struct {
	id   lvm.ID
	uuid string
}

// Device finds the device of an active volume in sysfs, without LVM. A volume that does not exist is inactive, not an error.
func (h *Host) Device(id lvm.ID, uuid string) (device string, active bool, err error) {
	return h.engine.FindDevice(id, uuid)
}

// Activate returns the device of a volume, "/dev/dm-N", and activates the volume if it has none. That takes one LVM process,
// and one more for a new volume, which must be tagged as ready first; an active volume takes none. uuid is the logical volume's
// UUID from the volume attributes. KindNotFound: the volume does not exist, or another one has its name now; KindNotLocal: its
// volume group is not on this node.
func (h *Host) Activate(ctx context.Context, id lvm.ID, uuid string) (device string, err error) {
	return oplock.Do(ctx, &h.operations, id.LV, activating{id, uuid}, func(ctx context.Context) (string, error) {
		return h.activate(ctx, id, uuid)
	})
}

func (h *Host) activate(ctx context.Context, id lvm.ID, uuid string) (string, error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return "", err
	}
	g, _, v, err := s.FindVolume(id)
	switch {
	case err != nil:
		return "", err
	case v.UUID != uuid:
		return "", g.AbsentError("volume %s was removed and %s/%s created again (UUID %s instead of %s)", id, v.Group, id.LV, v.UUID, uuid)
	case v.State != lvm.StateReady:
		return "", engine.NotReady(g, v)
	}
	if h.engine.Untagged.Has(id.VG, uuid) {
		if err := h.ready.TagFor(ctx, id.VG, uuid); err != nil {
			return "", err
		}
	}
	return h.engine.EnsureActive(ctx, v)
}
