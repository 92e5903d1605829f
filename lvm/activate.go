package lvm

import "context"

// activating is an Activate request, as flights compare it.
type activating struct {
	id   ID
	uuid string
}

// Device finds the device of a volume that is active, through sysfs alone: a volume that is not there is not an error,
// only inactive. The names below /dev/mapper and /dev/GROUP are never trusted; they can be stale.
func (h *Host) Device(id ID, uuid string) (device string, active bool, err error) {
	devices, err := h.machine.Kernel.Devices()
	if err != nil {
		return "", false, Errorf(KindInternal, "the devices of this node cannot be listed: %w", err)
	}
	want := dmUUID(id.VG, uuid)
	for _, d := range devices {
		if d.UUID == want {
			return d.Path, true, nil
		}
	}
	return "", false, nil
}

// Activate returns the device of a volume, "/dev/dm-N", after making it if it is not there: one LVM process then, else
// none. uuid is the logical volume's own, from the volume attributes. KindNotFound: there is no such volume, or another
// one has its name now; KindNotOurs: its group is not on this node.
func (h *Host) Activate(ctx context.Context, id ID, uuid string) (device string, err error) {
	return fly(ctx, &h.flights, id.LV, activating{id, uuid}, func(ctx context.Context) (string, error) {
		return h.activate(ctx, id, uuid)
	})
}

func (h *Host) activate(ctx context.Context, id ID, uuid string) (string, error) {
	s, err := h.read(ctx)
	if err != nil {
		return "", err
	}
	_, _, v, err := s.find(id)
	switch {
	case err != nil:
		return "", err
	case v.UUID != uuid:
		return "", Errorf(KindNotFound, "volume %s is gone: %s/%s was made anew (its UUID is %s, and %s was asked for)", id, v.Group, id.LV, v.UUID, uuid)
	case v.State != StateReady:
		return "", Errorf(KindNotFound, "volume %s is not there: %s/%s is in the state %q", id, v.Group, id.LV, v.State)
	}
	return h.device(ctx, v)
}

// device returns the volume's device, and activates it if need be. LVM's exit status is not asked: the device is there
// or it is not.
func (h *Host) device(ctx context.Context, v Volume) (string, error) {
	path, active, err := h.Device(v.ID, v.UUID)
	if err != nil || active {
		return path, err
	}
	unlock, err := h.writers.lock(ctx, v.ID.VG)
	if err != nil {
		return "", Errorf(KindBusy, "volume %s: waiting for its volume group: %w", v.ID, err)
	}
	defer unlock()
	s, err := h.read(ctx)
	if err != nil {
		return "", err
	}
	g, _, now, err := s.find(v.ID)
	if err != nil {
		return "", err
	}
	if now.UUID != v.UUID || now.State != v.State {
		return "", Errorf(KindBusy, "volume %s was changed meanwhile: ask again", v.ID)
	}
	t, err := targetOf(g.Name, v.ID.LV)
	if err != nil {
		return "", err
	}
	_, failure := h.machine.Runner.Run(ctx, activateArgs(t, g))
	path, active, err = h.Device(v.ID, v.UUID)
	if err == nil && !active {
		if failure == nil {
			return "", Errorf(KindInternal, "volume %s was activated, and device-mapper does not show it", t)
		}
		return "", Errorf(KindInternal, "volume %s could not be activated: %w", t, failure)
	}
	return path, err
}
