package node

import (
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

// planStage reports whether the volume is mounted at a staging path. It refuses another mount, files, and the volume itself if it is
// staged with another type or access than requested (CSI spec, "NodeStageVolume Errors").
func planStage(p mount.PathInfo, device mount.DeviceNumber, r stageRequest) (mounted bool, err error) {
	if p.Mount != nil {
		switch {
		case p.Mount.Device != device:
			return false, lvm.Errorf(lvm.KindConflict, "cannot stage the volume at %s: %s (%s) is mounted there; unmount it and retry", p.Path, p.Mount.Source, p.Mount.FSType)
		case p.Mount.FSType != r.fsType:
			return false, lvm.Errorf(lvm.KindExists, "volume %s is already staged at %s with a file system of type %s, but %s was requested; unstage it there first",
				r.id, p.Path, p.Mount.FSType, r.fsType)
		case p.Mount.ReadOnly != r.mountReadOnly:
			return false, lvm.Errorf(lvm.KindExists, "volume %s is already staged at %s %s, but %s was requested; unstage it there first",
				r.id, p.Path, access(p.Mount.ReadOnly), access(r.mountReadOnly))
		}
		return true, nil
	}
	if p.Kind != mount.PathAbsent && p.Kind != mount.PathEmptyDir {
		return false, lvm.Errorf(lvm.KindConflict, "cannot stage the volume at %s: it is %s, which a mount would hide; move it away and retry", p.Path, p.Kind)
	}
	return false, nil
}

func access(readOnly bool) string {
	if readOnly {
		return "read-only"
	}
	return "writable"
}

// planPublish reports whether the volume is at a pod's path, or refuses to bind it there. staged describes the staging path, which a block
// volume does not need. mounts are all mount points of the volume (CSI spec, "NodePublishVolume", second table).
func planPublish(r publishRequest, target, staged mount.PathInfo, mounts []mount.Point, device mount.DeviceNumber) (published bool, err error) {
	if target.Mount != nil {
		return true, checkPublished(r, target, device)
	}
	if !r.block && (staged.Mount == nil || staged.Mount.Device != device) {
		return false, lvm.Errorf(lvm.KindConflict, "volume %s is not mounted at its staging path %s: it must be staged there first", r.id, r.staging)
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

// checkPublished refuses a target where something else is mounted, or the volume with the other access.
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
	return nil
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
