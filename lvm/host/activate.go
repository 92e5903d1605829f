package host

import (
	"cmp"
	"context"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// activating identifies an Activate request among the operations in flight.
type activating struct {
	id         lvm.ID
	uuid       string
	encryption lvm.Encryption
}

// Device finds the device of an active volume in sysfs, without LVM. A volume that does not exist is inactive, not an error.
func (h *Host) Device(ctx context.Context, id lvm.ID, uuid string) (device string, active bool, err error) {
	return h.engine.FindDevice(ctx, id, uuid)
}

// ActiveDevices returns the devices of the volumes that List returns, as Device does, from one reading that may be as old as
// Config.CacheTTL. Those of inactive volumes are absent. A device without a number was not listed by device-mapper.
func (h *Host) ActiveDevices(ctx context.Context, volumes []lvm.Volume) (map[lvm.ID]lvm.Device, error) {
	return h.engine.FindDevices(ctx, volumes)
}

// Activate returns the device of a volume, "/dev/dm-N", and activates the volume if it has none. That takes one LVM process,
// and one more for a new volume, which must be tagged as ready first; an active volume takes none. uuid is the logical volume's
// UUID from the volume attributes. KindNotFound: the volume does not exist, or another one has its name now; KindNotLocal: its
// volume group is not on this node.
func (h *Host) Activate(ctx context.Context, id lvm.ID, uuid string) (device string, err error) {
	done, err := h.activateOnce(ctx, activating{id, uuid, lvm.EncryptionNone})
	return done.device, err
}

// ActivateAs is Activate for a volume with an encryption, and also returns the volume as it read it before. KindConflict: the volume has another
// encryption.
func (h *Host) ActivateAs(ctx context.Context, id lvm.ID, uuid string, encryption lvm.Encryption) (v lvm.Volume, device string, err error) {
	done, err := h.activateOnce(ctx, activating{id, uuid, encryption})
	return done.volume, done.device, cmp.Or(err, done.unknown)
}

type activated struct {
	volume  lvm.Volume
	unknown error // why volume is not known
	device  string
}

func (h *Host) activateOnce(ctx context.Context, a activating) (activated, error) {
	return oplock.Do(ctx, &h.operations, a.id.LV, a, func(ctx context.Context) (activated, error) { return h.activate(ctx, a) })
}

func (h *Host) activate(ctx context.Context, a activating) (done activated, err error) {
	id, uuid := a.id, a.uuid
	s, err := h.engine.ReadVolumes(ctx)
	if err != nil {
		return done, err
	}
	g, lv, v, err := engine.FindReady(s, id, uuid)
	switch {
	case err != nil && g.Unreadable != "":
		h.replays.Delete(uuid) // it may get another device
		if done.device, err = h.engine.ActivateUnreadable(ctx, g, id, uuid); err == nil {
			done.volume, done.unknown = h.engine.LookupUnreadable(g, id)
		}
		return done, err
	case err != nil:
		return done, err
	case v.Class.Encryption != a.encryption:
		return done, lvm.Errorf(lvm.KindConflict, "logical volume %s/%s is %s by its tags, and its PersistentVolume says that it is %s: correct the volume attribute nodelvm.io/encryption of the PersistentVolume (create it again with reclaim policy Retain)",
			v.Group, id.LV, v.Class.Encryption.Description(), a.encryption.Description())
	}
	if h.engine.Untagged.Has(id.VG, uuid) {
		if err := h.ready.TagFor(ctx, id.VG, uuid); err != nil {
			return done, err
		}
	}
	if v.Access == lvm.AccessReplaying {
		if _, active, err := h.engine.FindDevice(ctx, id, uuid); err != nil || !active {
			h.replays.Delete(uuid) // the new device has no count of what the replay wrote to the last one
		}
	}
	done.volume = v
	done.device, err = h.engine.EnsureActive(ctx, g, lv, v)
	return done, err
}

// Lookup finds a ready volume. KindNotFound: proven absent, not yet ready, or deleted; KindNotLocal: its group is not on this
// node.
func (h *Host) Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error) {
	s, err := h.engine.ReadVolumes(ctx)
	if err != nil {
		return lvm.Volume{}, err
	}
	g, _, v, err := s.FindVolume(id)
	switch {
	case err != nil && g.Unreadable != "":
		return h.engine.LookupUnreadable(g, id)
	case err == nil && v.State != lvm.StateReady:
		err = engine.NotReady(g, v)
	}
	if err != nil {
		return lvm.Volume{}, err
	}
	return v, nil
}

// List lists the ready volumes of this cluster, ordered by ID.
func (h *Host) List(ctx context.Context) ([]lvm.Volume, error) {
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		return nil, err
	}
	ready := slices.DeleteFunc(h.volumes(s), func(v lvm.Volume) bool { return v.State != lvm.StateReady })
	slices.SortFunc(ready, func(a, b lvm.Volume) int { return a.ID.Compare(b.ID) })
	return ready, nil
}

// volumes lists the volumes of this cluster, in any state. Start has logged those with invalid tags.
func (h *Host) volumes(s lvm.State) (all []lvm.Volume) {
	for _, g := range s.Groups {
		all = slices.Grow(all, len(g.LVs))
		for _, v := range g.Volumes() {
			if v.Cluster == h.engine.Config.Cluster {
				all = append(all, v)
			}
		}
	}
	return all
}
