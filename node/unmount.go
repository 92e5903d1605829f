package node

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

// NodeUnstageVolume unmounts the staging path and closes an encrypted volume (CSI spec, "NodeUnstageVolume"). It does not
// remove the path, which the CO owns. It runs no LVM command, and the logical volume stays active. lvm.KindInUse: files are
// open there; lvm.KindConflict: something else is mounted there, which the driver does not unmount.
func (s *Server) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	staging, err := parseVolumePath(req.GetVolumeId(), "staging_target_path", req.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	release, err := s.locks.lock(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := s.unmountAll(ctx, req.GetVolumeId(), staging); err != nil {
		return nil, err
	}
	if err := s.closeMapping(ctx, req.GetVolumeId()); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodeUnpublishVolume unmounts a volume from a pod's path, and removes the path (CSI spec, "NodeUnpublishVolume"). It runs no
// LVM command. lvm.KindInUse: files are open there; lvm.KindConflict: something else is there, which the driver leaves
// unchanged.
func (s *Server) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target, err := parseVolumePath(req.GetVolumeId(), "target_path", req.GetTargetPath())
	if err != nil {
		return nil, err
	}
	release, err := s.lockTarget(req.GetVolumeId(), target, func() (bool, error) { return s.isReadOnlyDevice(target) })
	if err != nil {
		return nil, err
	}
	defer release()
	info, err := s.unmountAll(ctx, req.GetVolumeId(), target)
	if err != nil {
		return nil, err
	}
	if err := checkRemovable(info); err != nil {
		return nil, err
	}
	if err := s.mounts.RemoveMountPoint(target); err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "cannot remove the empty mount point: %w", err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// mountsAtOnePath is more than any stack of mounts has; it ends the loop of unmountAll if unmounting has no effect.
const mountsAtOnePath = 16

// unmountAll unmounts all mounts of a volume at a path, also stacked ones, and returns what it then finds there.
func (s *Server) unmountAll(ctx context.Context, handle, path string) (mount.PathInfo, error) {
	for range mountsAtOnePath {
		info, err := s.mounts.Inspect(path)
		if err != nil || info.Mount == nil {
			return info, err
		}
		if err := s.checkOwner(ctx, handle, info); err != nil {
			return info, err
		}
		if err := s.unmount(info); err != nil {
			return info, err
		}
	}
	return mount.PathInfo{}, lvm.Errorf(lvm.KindInternal, "%s is still mounted after %d unmounts", path, mountsAtOnePath)
}

// checkOwner refuses (lvm.KindConflict) a mount that is not the volume's, and (lvm.KindNotFound) a handle that no volume of
// this driver can have.
func (s *Server) checkOwner(ctx context.Context, handle string, info mount.PathInfo) error {
	id, err := parseHandle(handle)
	if err != nil {
		return err
	}
	isVolume, err := s.devices.Owns(ctx, id, uint64(info.MountedDevice()))
	if err == nil && !isVolume {
		isVolume, err = s.isMapping(handle, info.MountedDevice())
	}
	if err != nil {
		return err
	}
	if !isVolume {
		return lvm.Errorf(lvm.KindConflict, "what is mounted at %s (%s, %s) is not volume %s, so the driver did not unmount it: unmount it, if it is not needed",
			info.Path, info.Mount.Source, info.Mount.FSType, id)
	}
	return nil
}

// isReadOnlyDevice reports whether a raw device is published read-only at a path. The last unmount of such a device makes it writable,
// so no other publication of the volume may run meanwhile.
func (s *Server) isReadOnlyDevice(path string) (bool, error) {
	info, err := s.mounts.Inspect(path)
	return err == nil && info.Kind == mount.PathDevice && info.Mount != nil && info.Mount.ReadOnly, err
}

// unmount removes the topmost mount at a path. It makes a read-only raw device writable with the last unmount; if that fails,
// the device is still published, and stays read-only. The caller holds the volume exclusively then.
func (s *Server) unmount(info mount.PathInfo) error {
	s.endLimits(info)
	if info.Kind != mount.PathDevice || !info.Mount.ReadOnly {
		return s.mounts.Unmount(info.Path)
	}
	mounts, err := s.mounts.Mounts(info.Path)
	last := err == nil && len(mounts) == 1
	if last {
		s.setReadOnly(info, false)
	}
	err = s.mounts.Unmount(info.Path)
	if err != nil && last {
		s.setReadOnly(info, true)
	}
	return err
}

// setReadOnly only logs a failure: a pod must end whatever state its device is in, and publishing for writing retries.
func (s *Server) setReadOnly(info mount.PathInfo, readOnly bool) {
	if err := s.block.SetReadOnly(info.Path, readOnly); err != nil {
		s.log.Warn("cannot change whether a raw device is read-only", "path", info.Path, "readOnly", readOnly, "error", err)
	}
}

// checkRemovable refuses (lvm.KindConflict) to remove an unmounted target that NodePublishVolume cannot have created.
func checkRemovable(p mount.PathInfo) error {
	switch p.Kind {
	case mount.PathAbsent, mount.PathEmptyDir, mount.PathEmptyFile:
		return nil
	case mount.PathNonEmptyDir, mount.PathNonEmptyFile, mount.PathDevice, mount.PathOther:
	}
	return lvm.Errorf(lvm.KindConflict, "%s is not mounted and holds data (it is %s), so the driver does not remove it; check it, and move it away", p.Path, p.Kind)
}
