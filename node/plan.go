package node

import (
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// DeviceNumber is a block device's number (dev_t). The driver compares mounts and devices by it, never by name.
type DeviceNumber uint64

// PathInfo describes what is at a path.
type PathInfo struct {
	Path   string       // with the links in its parents resolved, as the kernel lists mounts
	Mount  *Mount       // the topmost mount there; nil: not a mount point
	Kind   PathKind     // not checked for a mounted whole file system, which may be unresponsive
	Device DeviceNumber // of a PathDevice
}

// PathKind is the kind of file at a path.
type PathKind int

const (
	PathAbsent       PathKind = iota
	PathEmptyDir              // an empty directory
	PathNonEmptyDir           // a directory that is not empty
	PathEmptyFile             // an empty regular file, the mount point of a block volume
	PathNonEmptyFile          // a regular file with content
	PathDevice                // a block device
	PathOther                 // a symbolic link, a socket, ...
)

func (k PathKind) String() string {
	switch k {
	case PathAbsent:
		return "nothing"
	case PathEmptyDir:
		return "an empty directory"
	case PathNonEmptyDir:
		return "a directory that is not empty"
	case PathEmptyFile:
		return "an empty file"
	case PathNonEmptyFile:
		return "a file with content"
	case PathDevice:
		return "a block device"
	case PathOther:
		return "neither a directory nor a plain file"
	}
	return fmt.Sprintf("PathKind(%d)", int(k))
}

// Mount is one mount (proc_pid_mountinfo(5)).
type Mount struct {
	Device   DeviceNumber // of the file system; devtmpfs's for the bind mount of a block volume
	FSType   string
	Source   string
	ReadOnly bool // the mount itself; the file system may differ
}

// Content is the result of the checks of a device: blkid(8) with unrestricted probing, wipefs(8), the first 4 KiB, which lvcreate zeroes
// (lvcreate(8), --zero), the format mark, and the copies of superblocks. The blocks after the first 4 KiB need not be zero: a volume of a
// class with wipe "none" may show older data there.
type Content struct {
	Type       string   // of the file system; "" if blkid is not sure of one.
	Others     []string // descriptions of all other findings.
	Unfinished string   // the type of a file system whose mkfs was interrupted, with proof that it never held data.
	Marked     bool     // the device has the format mark: no file system on it was ever mounted
	Rest       Remains  // of a file system that nothing recognizes, on a device without the mark
	Mounted    bool     // the device is mounted already
}

// Blank reports whether blkid, wipefs and the first 4 KiB show nothing. That alone does not allow a format.
func (c Content) Blank() bool { return c.Type == "" && len(c.Others) == 0 && c.Unfinished == "" }

// action is the result of a plan.
type action int

const (
	actNothing action = iota // the path already has the requested state
	actMount                 // mount, or bind
	actRemount               // replace the mount
	actFormat                // create the file system, then mount
	actCheck                 // check the file system, then mount
)

// mountedDevice returns the number of the device that is mounted or bound at the path.
func (p PathInfo) mountedDevice() DeviceNumber {
	if p.Kind == PathDevice {
		return p.Device
	}
	return p.Mount.Device
}

// planStage decides what to do at a staging path. It refuses another mount, files, and the volume itself if it is
// staged with another type or access than requested (CSI spec, "NodeStageVolume Errors").
func planStage(p PathInfo, device DeviceNumber, r stageRequest) (action, error) {
	if p.Mount != nil {
		switch {
		case p.Mount.Device != device:
		case p.Mount.FSType != r.fsType:
			return 0, lvm.Errorf(lvm.KindExists, "volume %s is already staged at %s with a file system of type %s, but %s was requested; unstage it there first",
				r.id, p.Path, p.Mount.FSType, r.fsType)
		case p.Mount.ReadOnly != r.mountReadOnly:
			return 0, lvm.Errorf(lvm.KindExists, "volume %s is already staged at %s %s, but %s was requested; unstage it there first",
				r.id, p.Path, access(p.Mount.ReadOnly), access(r.mountReadOnly))
		default:
			return actNothing, nil
		}
		return 0, lvm.Errorf(lvm.KindConflict, "cannot stage the volume at %s: %s (%s) is mounted there; unmount it and retry", p.Path, p.Mount.Source, p.Mount.FSType)
	}
	switch p.Kind {
	case PathAbsent, PathEmptyDir:
		return actMount, nil
	case PathNonEmptyDir, PathEmptyFile, PathNonEmptyFile, PathDevice, PathOther:
	}
	return 0, lvm.Errorf(lvm.KindConflict, "cannot stage the volume at %s: it is %s, which a mount would hide; move it away and retry", p.Path, p.Kind)
}

func access(readOnly bool) string {
	if readOnly {
		return "read-only"
	}
	return "writable"
}

// planContent decides how the driver turns the device's content into a file system of the requested type.
func planContent(device string, c Content, o origin, fsType string, size lvm.Bytes) (action, error) {
	empty := c.Blank() || c.Unfinished != ""
	switch {
	case empty && size < minimumSizes[fsType]:
		return 0, lvm.Errorf(lvm.KindInvalid, "the volume has %s, but a file system of type %s needs at least %s: request more, or use ext4", size, fsType, minimumSizes[fsType])
	case empty:
		return actFormat, checkFormat(device, c, o, fsType)
	case len(c.Others) > 0:
		return 0, refuseContent(device, c, o, fsType)
	case !mountableAs(fsType, c.Type):
		return 0, lvm.Errorf(lvm.KindConflict, "device %s contains a file system of type %s instead of %s, so the driver does not format it", device, c.Type, fsType)
	case c.Mounted: // fsck refuses a mounted device, and the driver checked it before that mount
		return actMount, nil
	}
	return actCheck, nil
}

// mountableAs reports whether a file system that blkid found can be mounted as fsType. blkid reports an ext4 without any ext4
// feature as ext3 or ext2: one of an adopted volume, or one that was created with these features disabled (mkfsOptions).
func mountableAs(fsType, found string) bool {
	return found == fsType || fsType == "ext4" && slices.Contains([]string{"ext3", "ext2"}, found)
}

func joinAnd(list []string) string {
	text := list[0]
	for i, w := range list[1:] {
		if i == len(list)-2 {
			text += " and " + w
		} else {
			text += ", " + w
		}
	}
	return text
}

// planPublish decides what to do at a pod's path. staged describes the staging path, which a block volume does not need. mounts
// are all mount points of the volume (CSI spec, "NodePublishVolume", second table).
func planPublish(r publishRequest, target, staged PathInfo, mounts []MountPoint, device DeviceNumber) (action, error) {
	if target.Mount != nil {
		return planRepublish(r, target, device)
	}
	if !r.block && (staged.Mount == nil || staged.Mount.Device != device) {
		return 0, lvm.Errorf(lvm.KindConflict, "volume %s is not mounted at its staging path %s: it must be staged there first", r.id, r.staging)
	}
	for _, other := range mounts {
		if other.Path == staged.Path || other.Path == target.Path {
			continue
		}
		if r.onePod {
			return 0, lvm.Errorf(lvm.KindInUse, "volume %s is published at %s, and its access mode (ReadWriteOncePod) allows one pod at a time: end the other pod first", r.id, other.Path)
		}
		if r.block && other.ReadOnly != r.readOnly {
			return 0, lvm.Errorf(lvm.KindInUse, "volume %s is published at %s %s, but %s is requested: a raw device is read-only for all pods of a node or for none; end the other pod first",
				r.id, other.Path, access(other.ReadOnly), access(r.readOnly))
		}
	}
	expected := PathEmptyDir
	if r.block {
		expected = PathEmptyFile
	}
	if target.Kind == PathAbsent || target.Kind == expected {
		return actMount, nil
	}
	return 0, lvm.Errorf(lvm.KindConflict, "cannot publish the volume at %s: it is %s, which a mount would hide; move it away and retry", target.Path, target.Kind)
}

// planRepublish decides for a target that is already mounted. A writable mount for a read-only request comes from an earlier
// version, which bound and then remounted; the driver replaces it, unless a process uses it. The opposite belongs to another
// request.
func planRepublish(r publishRequest, target PathInfo, device DeviceNumber) (action, error) {
	isVolume := target.Mount.Device == device
	if r.block {
		isVolume = target.Kind == PathDevice && target.Device == device
	}
	switch {
	case !isVolume:
		return 0, lvm.Errorf(lvm.KindConflict, "cannot publish the volume at %s: %s (%s) is mounted there; unmount it and retry", target.Path, target.Mount.Source, target.Mount.FSType)
	case r.readOnly && !target.Mount.ReadOnly:
		return actRemount, nil
	case !r.readOnly && target.Mount.ReadOnly:
		return 0, lvm.Errorf(lvm.KindExists, "volume %s is already published at %s read-only, but writable was requested; unpublish it there first", r.id, target.Path)
	}
	return actNothing, nil
}

// checkRemovable refuses (lvm.KindConflict) to remove an unmounted target that NodePublishVolume cannot have created.
func checkRemovable(p PathInfo) error {
	switch p.Kind {
	case PathAbsent, PathEmptyDir, PathEmptyFile:
		return nil
	case PathNonEmptyDir, PathNonEmptyFile, PathDevice, PathOther:
	}
	return lvm.Errorf(lvm.KindConflict, "%s is not mounted and holds data (it is %s), so the driver does not remove it; check it, and move it away", p.Path, p.Kind)
}
