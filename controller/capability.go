package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// usage is how a volume will be used: all of its capabilities together.
type usage struct {
	raw     bool     // as a raw device
	fsType  string   // with a file system; "": none
	options []string // mount options

	readOnly, writable bool // some capability is for readers, some for writers
	readOnlyMany       bool // for the readers of a claim with ReadOnlyMany
}

// access returns who may write to a volume with a source. A raw device has no journal to replay.
func (u usage) access() lvm.Access {
	switch {
	case !u.readOnly || u.writable:
		return lvm.AccessWritable
	case u.fsType == "":
		return lvm.AccessReadOnly
	}
	return lvm.AccessReplay
}

// parseCapabilities refuses (lvm.KindInvalid) every use that a disk of one node cannot serve.
func (s *Server) parseCapabilities(capabilities []*csi.VolumeCapability) (u usage, err error) {
	for _, capability := range capabilities {
		if err := u.addMode(capability.GetAccessMode().GetMode()); err != nil {
			return usage{}, err
		}
		mount := capability.GetMount()
		switch {
		case capability.GetBlock() != nil:
			u.raw = true
		case mount == nil:
			return usage{}, lvm.Errorf(lvm.KindInvalid, "a volume capability has no access type; use mount or block")
		default:
			wanted := cmp.Or(mount.GetFsType(), api.DefaultFSType)
			if err := s.checkFileSystem(wanted, ""); err != nil {
				return usage{}, err
			}
			if u.fsType != "" && u.fsType != wanted {
				return usage{}, lvm.Errorf(lvm.KindInvalid, "one volume cannot hold two file systems, %s and %s", u.fsType, wanted)
			}
			u.fsType = wanted
			u.options = append(u.options, mount.GetMountFlags()...)
		}
	}
	if u.readOnlyMany && u.writable {
		return usage{}, lvm.Errorf(lvm.KindInvalid, "access mode ReadOnlyMany cannot be combined with another one: use it alone, or use ReadWriteOnce, which several pods of one node can share")
	}
	return u, nil
}

func (u *usage) addMode(mode csi.VolumeCapability_AccessMode_Mode) error {
	switch mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		u.writable = true
		return nil
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		u.readOnly = true
		return nil
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		u.readOnly, u.readOnlyMany = true, true
		return nil
	case csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return notOneNode(mode)
	case csi.VolumeCapability_AccessMode_UNKNOWN:
	}
	return lvm.Errorf(lvm.KindInvalid, "a volume capability has no known access mode (%s)", mode)
}

// notOneNode returns the error for an access mode of several nodes, with the name that the mode has in a claim.
func notOneNode(mode csi.VolumeCapability_AccessMode_Mode) error {
	name, instead := mode.String(), "use ReadWriteOnce or ReadWriteOncePod in the claim"
	switch mode {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		name = "ReadWriteMany"
		instead = "use ReadWriteOnce in the claim, which several pods of one node can share, or ReadWriteOncePod"
	default:
	}
	return lvm.Errorf(lvm.KindInvalid, "access mode %s is not possible: the volume is on one node's own disk; %s", name, instead)
}

// errEmptyReadOnlyMany refuses a volume that could never get content.
var errEmptyReadOnlyMany = lvm.Errorf(lvm.KindInvalid, "access mode ReadOnlyMany is only for a read-only copy: "+
	"name a snapshot, or a claim with a thin volume, as the claim's dataSource. For an empty volume use ReadWriteOnce, and readOnly: true where the pods name the claim")

// checkAccess refuses to use an existing volume with these capabilities.
func checkAccess(u usage, volume lvm.Volume) error {
	switch {
	case u.readOnlyMany && !volume.Access.ReadOnly():
		return lvm.Errorf(lvm.KindInvalid, "access mode ReadOnlyMany is for read-only copies, and the volume is writable")
	case u.writable && volume.Access.ReadOnly():
		return lvm.Errorf(lvm.KindInvalid, "the volume is a read-only copy: its only access mode is ReadOnlyMany")
	}
	return nil
}

// checkMounts refuses what staging could never mount: mount options that it refuses (lvm.KindInvalid), and a size that is too
// small for the file system (lvm.KindOutOfRange). what is the message's text before the size: "the claim asks for".
func (s *Server) checkMounts(u usage, size lvm.Bytes, what string) error {
	if err := s.checkMountOptions(u.fsType, u.options); err != nil {
		return fmt.Errorf("the mountOptions of the StorageClass: %w", err)
	}
	if least := s.minimumSize(u.fsType); size < least {
		return lvm.Errorf(lvm.KindOutOfRange, "a file system of type %s needs at least %s, but %s %s: request %s or more, or use ext4", u.fsType, least, what, size, least)
	}
	return nil
}

// riskyMounts and riskyFeatures give up the order in which a file system writes data and the metadata that points to it.
var (
	riskyMounts   = []string{"data=writeback", "nobarrier", "barrier=0"}
	riskyFeatures = []string{"^has_journal", "^extent"}
)

// showsUnwritten reports whether a volume's user may see blocks that nothing wrote since the volume's creation. A raw device
// shows all of them. A file system shows those of a file whose data was lost in a power cut, and only with these options.
func showsUnwritten(u usage, mkfs string) bool {
	risky := func(option string) bool { return slices.Contains(riskyMounts, option) }
	if u.raw || slices.ContainsFunc(strings.Split(strings.Join(u.options, ","), ","), risky) {
		return true
	}
	options := strings.FieldsFunc(mkfs, func(r rune) bool { return r == ' ' || r == ',' })
	return slices.ContainsFunc(options, func(option string) bool { return slices.Contains(riskyFeatures, option) })
}
