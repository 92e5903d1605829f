package node

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

// currentDevice returns the device that the pods of a volume use: the mapping of an encrypted volume, else its logical volume.
func (s *Server) currentDevice(ctx context.Context, v volume) (device string, active bool, err error) {
	if v.encryption == lvm.EncryptionNone {
		return s.devices.Device(ctx, v.id, v.uuid)
	}
	device, _, active, err = s.encryption.Mapping(v.id.String())
	return device, active, err
}

// openDevice opens a volume's device, and checks that it is still the volume's: device-mapper gives the number of a device that
// an admin has deactivated to the next one, possibly of another volume. While it is open, that cannot happen.
func (s *Server) openDevice(ctx context.Context, v volume, device string) (mount.BlockDevice, func(), error) {
	block, release, err := s.block.OpenDevice(device)
	if err != nil {
		return block, nil, err
	}
	now, active, err := s.currentDevice(ctx, v)
	if err == nil && (!active || now != device) {
		err = lvm.Errorf(lvm.KindBusy, "device %s is no longer volume %s: it was deactivated meanwhile; retry", device, v.id)
	}
	if err != nil {
		release()
		return block, nil, err
	}
	return block, release, nil
}

// deviceOf returns a volume, and the path and description of the device that its pods use.
func (s *Server) deviceOf(ctx context.Context, id lvm.ID) (v lvm.Volume, path string, block mount.BlockDevice, err error) {
	if v, err = s.lookup(ctx, id); err != nil {
		return v, "", block, err
	}
	path, active, err := s.currentDevice(ctx, volumeOf(v))
	if err != nil {
		return v, "", block, err
	}
	if !active {
		return v, "", block, notInUse(id)
	}
	block, err = s.block.Stat(path)
	return v, path, block, err
}

// lookup returns a ready volume; lvm.KindNotFound: this node has none with that handle.
func (s *Server) lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error) {
	v, err := s.devices.Lookup(ctx, id)
	if kind := lvm.KindOf(err); kind == lvm.KindNotLocal || kind == lvm.KindNotManaged {
		return v, lvm.Errorf(lvm.KindNotFound, "%w", err)
	}
	return v, err
}

func notInUse(id lvm.ID) error {
	return lvm.Errorf(lvm.KindNotFound, "volume %s is not in use on this node: it has no device", id)
}

// volumeOf returns the fields that the search for a volume's device needs.
func volumeOf(v lvm.Volume) volume {
	return volume{id: v.ID, uuid: v.UUID, encryption: v.Class.Encryption}
}

// activeDevice returns the path and number of the device that a volume's pods use; active is false if there is none.
func (s *Server) activeDevice(ctx context.Context, v lvm.Volume) (path string, number mount.DeviceNumber, active bool) {
	path, active, err := s.currentDevice(ctx, volumeOf(v))
	if err != nil || !active {
		return "", 0, false
	}
	block, err := s.block.Stat(path)
	return path, block.Number, err == nil
}

// activeDevices returns activeDevice for these volumes, from one reading of the devices. For whoever only reports.
func (s *Server) activeDevices(ctx context.Context, volumes []lvm.Volume) func(lvm.Volume) (path string, number mount.DeviceNumber, active bool) {
	all, err := s.devices.ActiveDevices(ctx, volumes)
	return func(v lvm.Volume) (string, mount.DeviceNumber, bool) {
		if err != nil || v.Class.Encryption != lvm.EncryptionNone {
			return s.activeDevice(ctx, v)
		}
		d, active := all[v.ID]
		if !active || d.Number != 0 {
			return d.Path, mount.DeviceNumber(d.Number), active
		}
		block, err := s.block.Stat(d.Path)
		return d.Path, block.Number, err == nil
	}
}

// writableMounts returns the device of a volume, and the mounts of its file system for writing. lvm.KindNotFound: it has no device.
func (s *Server) writableMounts(ctx context.Context, id lvm.ID) (mount.BlockDevice, []mount.FileSystem, error) {
	_, _, block, err := s.deviceOf(ctx, id)
	if err != nil {
		return block, nil, err
	}
	mounted, err := s.mounted.FileSystems()
	return block, writable(mounted[block.Number]), err
}

func writable(mounts []mount.FileSystem) (list []mount.FileSystem) {
	for _, m := range mounts {
		if !m.ReadOnly {
			list = append(list, m)
		}
	}
	return list
}
