package node

import (
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// DeviceNumber is a block device's number (dev_t): what a mount and a device are compared by, never by name.
type DeviceNumber uint64

// Place is what stands at a path.
type Place struct {
	Path   string       // links above it resolved, as the kernel lists mounts
	Mount  *Mount       // the topmost mount there; nil: it is not a mount point
	Kind   PlaceKind    // what is there; not checked under a mount of a whole file system, which may be unresponsive
	Device DeviceNumber // of a PlaceDevice
}

// PlaceKind is the kind of file at a path.
type PlaceKind int

const (
	PlaceAbsent   PlaceKind = iota
	PlaceDir                // an empty directory
	PlaceFullDir            // a directory with something in it
	PlaceFile               // an empty regular file, as block volumes are bound over
	PlaceFullFile           // a regular file with content
	PlaceDevice             // a block device
	PlaceOther              // a symbolic link, a socket, ...
)

func (k PlaceKind) String() string {
	switch k {
	case PlaceAbsent:
		return "nothing"
	case PlaceDir:
		return "an empty directory"
	case PlaceFullDir:
		return "a directory that is not empty"
	case PlaceFile:
		return "an empty file"
	case PlaceFullFile:
		return "a file with content"
	case PlaceDevice:
		return "a block device"
	case PlaceOther:
		return "neither a directory nor a plain file"
	}
	return fmt.Sprintf("PlaceKind(%d)", int(k))
}

// Mount is one mount (proc_pid_mountinfo(5)).
type Mount struct {
	Device   DeviceNumber // of the file system; for a block volume's bind mount that of devtmpfs
	FSType   string
	Source   string
	ReadOnly bool // the mount itself, whatever the file system is
}

// Content is the result of three checks of a device: blkid(8) with unrestricted probing, wipefs(8), and the first 4 KiB, which
// lvcreate zeroes (lvcreate(8), --zero). The device is blank only if none of them finds anything. The blocks after the first
// 4 KiB need not be zero: a volume of a class with wipe "none" may show older data there.
type Content struct {
	Type       string   // of the file system; "" if blkid is not sure of one.
	Others     []string // descriptions of all other findings.
	Unfinished string   // the type of a file system whose mkfs was interrupted, with proof that it never held data.
	Marked     bool     // the file system is whole, was never mounted, and still has the mark of its mkfs
	Mounted    bool     // the device is mounted somewhere already
}

// Blank tells that nothing at all was found.
func (c Content) Blank() bool { return c.Type == "" && len(c.Others) == 0 && c.Unfinished == "" }

// action is what a plan wants done.
type action int

const (
	actNothing action = iota // it is as it was asked for
	actMount                 // mount, or bind
	actRemount               // the mount is there, and must be replaced
	actFormat                // make the file system, then mount
	actCheck                 // check the file system, then mount
)

// device is the number of the device that is mounted or bound at the place.
func (p Place) device() DeviceNumber {
	if p.Kind == PlaceDevice {
		return p.Device
	}
	return p.Mount.Device
}

// planStage decides what to do at a staging path. Another mount or files there are an error, and so is the volume itself,
// staged in another way than it is asked for (CSI spec, "NodeStageVolume Errors").
func planStage(p Place, device DeviceNumber, r stageRequest) (action, error) {
	if p.Mount != nil {
		switch {
		case p.Mount.Device != device:
		case p.Mount.FSType != r.fsType:
			return 0, lvm.Errorf(lvm.KindExists, "volume %s is staged at %s already, with a file system of type %s, and %s was asked for; unstage it there first",
				r.id, p.Path, p.Mount.FSType, r.fsType)
		case p.Mount.ReadOnly != r.mountReadOnly:
			return 0, lvm.Errorf(lvm.KindExists, "volume %s is staged at %s already, %s, and %s was asked for; unstage it there first",
				r.id, p.Path, access(p.Mount.ReadOnly), access(r.mountReadOnly))
		default:
			return actNothing, nil
		}
		return 0, lvm.Errorf(lvm.KindConflict, "%s is taken: %s (%s) is mounted there; unmount it, then the volume can be staged", p.Path, p.Mount.Source, p.Mount.FSType)
	}
	switch p.Kind {
	case PlaceAbsent, PlaceDir:
		return actMount, nil
	case PlaceFullDir, PlaceFile, PlaceFullFile, PlaceDevice, PlaceOther:
	}
	return 0, lvm.Errorf(lvm.KindConflict, "%s is taken: it is %s, and a mount would hide it; move it away, then the volume can be staged", p.Path, p.Kind)
}

func access(readOnly bool) string {
	if readOnly {
		return "read-only"
	}
	return "for writing"
}

// planContent decides how a device becomes a file system of the wanted type. Whatever is not proven blank is never
// formatted.
func planContent(device string, c Content, fsType string, size lvm.Bytes) (action, error) {
	empty := c.Blank() || c.Unfinished != ""
	switch {
	case empty && size < minimums[fsType]:
		return 0, lvm.Errorf(lvm.KindInvalid, "the volume has %s, but a file system of type %s needs at least %s: request more, or use ext4", size, fsType, minimums[fsType])
	case empty:
		return actFormat, nil
	case len(c.Others) > 0:
		return 0, lvm.Errorf(lvm.KindConflict, "device %s contains %s, so the driver does not format it. If that is not needed, clear the device with wipefs -a %s and zero its first 4 KiB", device, words(c.Others), device)
	case !mounts(fsType, c.Type):
		return 0, lvm.Errorf(lvm.KindConflict, "device %s contains a file system of type %s instead of %s, so the driver does not format it", device, c.Type, fsType)
	case c.Mounted: // a check would be refused, and it was checked before that mount
		return actMount, nil
	}
	return actCheck, nil
}

// mounts tells whether what blkid has found can be mounted as fsType. It calls an ext4 by an older name that lacks all that
// ext4 has added: one of an adopted volume, or one that was made with these features switched off (mkfsOptions).
func mounts(fsType, found string) bool {
	return found == fsType || fsType == "ext4" && slices.Contains([]string{"ext3", "ext2"}, found)
}

// minimums are what mkfs.xfs (xfsprogs since 5.19) and mkfs.btrfs accept.
var minimums = map[string]lvm.Bytes{"xfs": 300 * lvm.MiB, "btrfs": 109 * lvm.MiB}

func words(list []string) string {
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

// planPublish decides what to do at a pod's path. staged is the staging path's place; a block volume does not
// need it. mounts are all the paths where the volume is (CSI spec, "NodePublishVolume", second table).
func planPublish(r publishRequest, target, staged Place, mounts []MountPoint, device DeviceNumber) (action, error) {
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
			return 0, lvm.Errorf(lvm.KindInUse, "volume %s is published at %s, and its access mode (ReadWriteOncePod) allows one pod at a time: end that pod first", r.id, other.Path)
		}
		if r.block && other.ReadOnly != r.readOnly {
			return 0, lvm.Errorf(lvm.KindInUse, "volume %s is published at %s %s instead of %s: a raw device is read-only for all pods of a node or for none; end the other pod first",
				r.id, other.Path, access(other.ReadOnly), access(r.readOnly))
		}
	}
	fresh := PlaceDir
	if r.block {
		fresh = PlaceFile
	}
	if target.Kind == PlaceAbsent || target.Kind == fresh {
		return actMount, nil
	}
	return 0, lvm.Errorf(lvm.KindConflict, "%s is taken: it is %s, and a mount would hide it; move it away, then the volume can be published", target.Path, target.Kind)
}

// planRepublish decides for a target that is mounted already. A writable mount for a read-only request comes from an earlier
// version, which bound and then remounted; the driver replaces it, unless a process uses it. The opposite belongs to another
// request.
func planRepublish(r publishRequest, target Place, device DeviceNumber) (action, error) {
	ours := target.Mount.Device == device
	if r.block {
		ours = target.Kind == PlaceDevice && target.Device == device
	}
	switch {
	case !ours:
		return 0, lvm.Errorf(lvm.KindConflict, "%s is taken: %s (%s) is mounted there; unmount it, then the volume can be published", target.Path, target.Mount.Source, target.Mount.FSType)
	case r.readOnly && !target.Mount.ReadOnly:
		return actRemount, nil
	case !r.readOnly && target.Mount.ReadOnly:
		return 0, lvm.Errorf(lvm.KindExists, "volume %s is published at %s already, read-only; unpublish it there first", r.id, target.Path)
	}
	return actNothing, nil
}

// removable tells whether what stands at an unmounted target may be removed: only what publishing makes.
func removable(p Place) error {
	switch p.Kind {
	case PlaceAbsent, PlaceDir, PlaceFile:
		return nil
	case PlaceFullDir, PlaceFullFile, PlaceDevice, PlaceOther:
	}
	return lvm.Errorf(lvm.KindConflict, "%s is not mounted and holds data (it is %s), so the driver does not remove it; check it, and move it away", p.Path, p.Kind)
}
