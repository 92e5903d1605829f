package node

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// NodeStageVolume makes a volume usable on this node: it activates the device, opens an encrypted one, formats one that was
// never mounted, mounts the file system at the staging path, and resizes it to the device (CSI spec, "NodeStageVolume"). lvm.KindConflict: the
// path is in use, or the device holds other data, and the driver has changed nothing.
func (s *Server) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	r, err := parseStage(req)
	if err != nil {
		return nil, err
	}
	release, err := s.locks.lock(r.id.String())
	if err != nil {
		return nil, err
	}
	defer release()
	device, err := s.devices.ActivateAs(ctx, r.id, r.uuid, r.encryption)
	if err != nil {
		return nil, err
	}
	if r.block && r.encryption == lvm.EncryptionNone {
		return &csi.NodeStageVolumeResponse{}, nil // publishing binds the device itself
	}
	v, err := s.devices.Lookup(ctx, r.id)
	if err != nil {
		return nil, err
	}
	if err := s.stage(ctx, r, v, device); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (s *Server) stage(ctx context.Context, r stageRequest, v lvm.Volume, device string) error {
	block, release, err := s.openDevice(volume{id: r.id, uuid: r.uuid}, device)
	if err != nil {
		return err
	}
	defer release()
	mark := Mark{UUID: r.uuid, First: v.FormatMark}
	if r.encryption != lvm.EncryptionNone {
		var releaseMapping func()
		if device, block, releaseMapping, err = s.stageEncrypted(ctx, r, v, device); err != nil {
			return err
		}
		defer releaseMapping()
		mark = mappingMark(mark)
	}
	if r.block {
		return nil
	}
	return s.stageFileSystem(ctx, r, formatTarget{device, block.Size, mark, originOf(v, r.hasSource)}, block.Number)
}

// formatTarget is a device that may be formatted.
type formatTarget struct {
	device string
	size   lvm.Bytes
	mark   Mark
	origin origin
}

func (s *Server) stageFileSystem(ctx context.Context, r stageRequest, t formatTarget, number DeviceNumber) error {
	info, err := s.fs.Inspect(r.staging)
	if err != nil {
		return err
	}
	act, err := planStage(info, number, r)
	if err != nil {
		return err
	}
	if act != actNothing {
		if act, err = s.ensureFileSystem(ctx, r, t); err != nil {
			return err
		}
		if err := s.mountAt(info, false, func() error { return s.mountFileSystem(r, t.device) }); err != nil {
			return err
		}
	}
	if act == actFormat || r.readOnly {
		return nil
	}
	return s.resize(ctx, r.id, t.device, r.staging, r.fsType)
}

func (s *Server) mountFileSystem(r stageRequest, device string) error {
	err := s.fs.Mount(device, r.staging, r.fsType, mountOptions(r.volume))
	if err == nil {
		return nil
	}
	return lvm.Errorf(lvm.KindOf(err), "%w. The file system may be damaged (see the node's kernel log). %s", err, repair(device, Remains{}, r.fsType))
}

// openDevice opens a volume's device, and checks that it is still the volume's: device-mapper gives the number of a device that
// an admin has deactivated to the next one, possibly of another volume. While it is open, that cannot happen.
func (s *Server) openDevice(v volume, device string) (BlockDevice, func(), error) {
	block, release, err := s.fs.OpenDevice(device)
	if err != nil {
		return block, nil, err
	}
	now, active, err := s.currentDevice(v)
	if err == nil && (!active || now != device) {
		err = lvm.Errorf(lvm.KindBusy, "device %s is no longer volume %s: another program on this node deactivated it; the driver changed nothing, retry", device, v.id)
	}
	if err != nil {
		release()
		return block, nil, err
	}
	return block, release, nil
}

// mountOptions returns the options of the claim's class, and the driver's own. The kernel mounts a copied xfs file system,
// which has its origin's UUID, beside the origin only with nouuid, which changes nothing in it (xfs(5)). An ext4 superblock can
// request a kernel panic at the first error; errors= overrides it, and the class's own option, which comes later, overrides
// errors=.
func mountOptions(v volume) []string {
	switch {
	case v.fsType == "ext4":
		return append([]string{"errors=remount-ro"}, v.flags...)
	case v.hasSource && v.fsType == "xfs":
		return append(slices.Clone(v.flags), "nouuid")
	}
	return v.flags
}

// ensureFileSystem makes sure that the device has a sound file system of the requested type, and returns what it did.
func (s *Server) ensureFileSystem(ctx context.Context, r stageRequest, t formatTarget) (action, error) {
	content, err := s.fs.Probe(ctx, t.device, t.mark)
	if err != nil {
		return 0, err
	}
	act, err := planContent(t.device, content, t.origin, r.fsType, t.size)
	if err != nil {
		return 0, err
	}
	switch act {
	case actFormat:
		return act, s.makeFileSystem(ctx, r, Formatting{Device: t.device, Size: t.size, Mark: t.mark, Type: r.fsType, Clear: content.Unfinished != ""})
	case actCheck:
		if content.Marked {
			if err := s.fs.RemoveMark(t.device, t.mark); err != nil {
				return 0, err
			}
		}
		if r.hasSource && r.fsType == "btrfs" {
			if err := s.fs.SetUUID(ctx, t.device, btrfsUUID(r.uuid)); err != nil {
				return 0, err
			}
		}
		return act, s.fs.Fsck(ctx, t.device, r.fsType)
	case actNothing, actMount, actRemount:
	}
	return act, nil
}

func (s *Server) makeFileSystem(ctx context.Context, r stageRequest, f Formatting) (err error) {
	if f.Options, err = parseMkfs(r.fsType, r.mkfs); err != nil {
		return err
	}
	if err := checkKernel(r.fsType, f.Options, runningKernel()); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "creating a file system", "volume", r.id.String(), "device", f.Device, "type", f.Type, "options", r.mkfs, "afterInterruption", f.Clear)
	return s.fs.Format(ctx, f)
}

// mountAt creates the mount point if it is missing, and mounts; if that fails, it removes what it created.
func (s *Server) mountAt(info PathInfo, file bool, mount func() error) error {
	var made []string
	if info.Kind == PathAbsent {
		var err error
		if made, err = s.fs.CreateMountPoint(info.Path, file); err != nil {
			return lvm.Errorf(lvm.KindInternal, "cannot create the mount point: %w", err)
		}
	}
	err := mount()
	if err == nil {
		return nil
	}
	for _, path := range slices.Backward(made) {
		if left := s.fs.RemoveMountPoint(path); left != nil {
			s.log.Warn("cannot remove an empty mount point", "path", path, "error", left)
			break
		}
	}
	return err
}
