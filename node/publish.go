package node

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

// NodePublishVolume bind-mounts a staged volume at a pod's path: the file system's directory, or the device over a file (CSI
// spec, "NodePublishVolume"). Several pods of the node may use it at once. lvm.KindConflict: another mount or file is at the
// path, or the volume is not staged. lvm.KindExists: the volume is already there with another access or
// SELinux label than requested. lvm.KindInUse: another pod uses a volume that allows one pod at a time, or a raw device with the other access.
func (s *Server) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (_ *csi.NodePublishVolumeResponse, err error) {
	r, err := parsePublish(req)
	if err != nil {
		return nil, err
	}
	release, err := s.lockTarget(r.id.String(), r.target, func() (bool, error) { return r.onePod || r.block && r.readOnly, nil })
	if err != nil {
		return nil, err
	}
	defer release()
	defer func() { err = s.unfinished(ctx, r.id, r.target, err) }()
	device, active, err := s.currentDevice(ctx, r.volume)
	switch {
	case err == nil && !active && r.encryption != lvm.EncryptionNone:
		err = lvm.Errorf(lvm.KindConflict, "volume %s is encrypted and not open on this node: it must be staged first, with the Secret that %s of its PersistentVolume names", r.id, stageSecret)
	case err == nil && !active:
		_, device, err = s.devices.ActivateAs(ctx, r.id, r.uuid, r.encryption)
	}
	if err == nil && r.block {
		err = s.checkReady(ctx, r.volume)
	}
	if err != nil {
		return nil, err
	}
	if err := s.publish(ctx, r, device); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// checkReady returns an error for a volume that is being deleted, or is gone, and for writing to a read-only copy. A staged file system keeps its device open, which prevents
// the deletion; nothing keeps the device of a raw volume open before it is published.
func (s *Server) checkReady(ctx context.Context, v volume) error {
	now, err := s.devices.Lookup(ctx, v.id)
	if err == nil && now.UUID != v.uuid {
		err = lvm.Errorf(lvm.KindNotFound, "volume %s was removed and created again (UUID %s instead of %s)", v.id, now.UUID, v.uuid)
	}
	if err == nil {
		err = checkReadOnly(v, now)
	}
	return err
}

// lockTarget locks the target path exclusively and the volume shared, against unstaging; or both exclusively, if alone says so under
// the lock of the target.
func (s *Server) lockTarget(volume, target string, alone func() (bool, error)) (release func(), err error) {
	releaseTarget, err := s.locks.lock(target)
	if err != nil {
		return nil, err
	}
	hold := s.locks.lockShared
	exclusive, err := alone()
	if exclusive {
		hold = s.locks.lock
	}
	var releaseVolume func()
	if err == nil {
		releaseVolume, err = hold(volume)
	}
	if err != nil {
		releaseTarget()
		return nil, err
	}
	return func() { releaseVolume(); releaseTarget() }, nil
}

func (s *Server) publish(ctx context.Context, r publishRequest, device string) error {
	if r.block {
		bound, err := s.devices.Binding(r.id)
		if err != nil {
			return err
		}
		defer bound()
	}
	block, release, err := s.openDevice(ctx, r.volume, device)
	if err != nil {
		return err
	}
	defer release()
	target, err := s.mounts.Inspect(r.target)
	if err != nil {
		return err
	}
	source, staged := device, mount.PathInfo{}
	if !r.block {
		source = r.staging
		if staged, err = s.mounts.Inspect(r.staging); err != nil {
			return err
		}
	}
	mounts, err := s.mounts.Mounts(device)
	if err != nil {
		return err
	}
	published, err := planPublish(r, target, staged, mounts, block.Number)
	if err == nil {
		err = s.limitPod(ctx, r, block.Number)
	}
	if err != nil || published {
		return err
	}
	if r.block {
		if err := s.setDeviceWritable(device, !r.readOnly); err != nil {
			return err
		}
	}
	return s.mountAt(target, r.block, func() error { return s.bind(ctx, r, source) })
}

// bind binds a raw volume only if it is still ready after that: a deletion refuses a volume that is bound, and may have begun before.
func (s *Server) bind(ctx context.Context, r publishRequest, source string) error {
	if err := s.mounts.Bind(source, r.target, r.readOnly); err != nil || !r.block {
		return err
	}
	err := s.checkReady(ctx, r.volume)
	if err != nil {
		err = errors.Join(err, s.mounts.Unmount(r.target))
	}
	return err
}

// setDeviceWritable makes a raw device read-only or writable. A read-only bind mount does not protect the device from writes:
// it protects the file system with the device node.
func (s *Server) setDeviceWritable(device string, writable bool) error {
	readOnly, err := s.block.ReadOnly(device)
	if err != nil || readOnly == !writable {
		return err
	}
	return s.block.SetReadOnly(device, !writable)
}

// planPublish reports whether the volume is at a pod's path, or refuses to bind it there. staged describes the staging path, which a block
// volume does not need. mounts are all mount points of the volume (CSI spec, "NodePublishVolume", second table).
func planPublish(r publishRequest, target, staged mount.PathInfo, mounts []mount.Point, device mount.DeviceNumber) (published bool, err error) {
	if target.Mount != nil {
		return true, checkPublished(r, target, device)
	}
	if !r.block {
		if staged.Mount == nil || staged.Mount.Device != device {
			return false, lvm.Errorf(lvm.KindConflict, "volume %s is not mounted at its staging path %s: it must be staged there first", r.id, r.staging)
		}
		if err := checkLabel(r.volume, "staged", staged); err != nil {
			return false, err
		}
	}
	for _, other := range mounts {
		if other.Path == staged.Path || other.Path == target.Path {
			continue
		}
		if r.onePod {
			return false, lvm.Errorf(lvm.KindInUse, "volume %s is published at %s, and its access mode (ReadWriteOncePod) allows one pod at a time: end the other pod first", r.id, other.Path)
		}
		if r.block && other.ReadOnly != r.readOnly {
			return false, lvm.Errorf(lvm.KindInUse, "volume %s is published at %s %s, but %s is requested: a raw device is read-only for all pods of a node or for none; end the other pod first",
				r.id, other.Path, access(other.ReadOnly), access(r.readOnly))
		}
	}
	expected := mount.PathEmptyDir
	if r.block {
		expected = mount.PathEmptyFile
	}
	if target.Kind != mount.PathAbsent && target.Kind != expected {
		return false, lvm.Errorf(lvm.KindConflict, "cannot publish the volume at %s: it is %s, which a mount would hide; move it away and retry", target.Path, target.Kind)
	}
	return false, nil
}

// checkPublished refuses a target where something else is mounted, or the volume with the other access or another SELinux label.
func checkPublished(r publishRequest, target mount.PathInfo, device mount.DeviceNumber) error {
	isVolume := target.Mount.Device == device
	if r.block {
		isVolume = target.Kind == mount.PathDevice && target.Device == device
	}
	switch {
	case !isVolume:
		return lvm.Errorf(lvm.KindConflict, "cannot publish the volume at %s: %s (%s) is mounted there; unmount it and retry", target.Path, target.Mount.Source, target.Mount.FSType)
	case r.readOnly != target.Mount.ReadOnly:
		return lvm.Errorf(lvm.KindExists, "volume %s is already published at %s %s, but %s was requested; unpublish it there first", r.id, target.Path, access(target.Mount.ReadOnly), access(r.readOnly))
	}
	return checkLabel(r.volume, "published", target)
}
