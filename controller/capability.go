package controller

import (
	"cmp"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// checkCapabilities refuses (lvm.KindInvalid) every use that a disk of one node cannot serve. It returns the file system that
// the mount capabilities request; "" for a raw device.
func (s *Server) checkCapabilities(capabilities []*csi.VolumeCapability) (fsType string, err error) {
	for _, capability := range capabilities {
		if err := checkAccessMode(capability.GetAccessMode().GetMode()); err != nil {
			return "", err
		}
		switch {
		case capability.GetBlock() != nil:
		case capability.GetMount() == nil:
			return "", lvm.Errorf(lvm.KindInvalid, "a volume capability has no access type; use mount or block")
		default:
			wanted := cmp.Or(capability.GetMount().GetFsType(), api.DefaultFSType)
			if err := s.checkFileSystem(wanted, ""); err != nil {
				return "", err
			}
			if fsType != "" && fsType != wanted {
				return "", lvm.Errorf(lvm.KindInvalid, "one volume cannot hold two file systems, %s and %s", fsType, wanted)
			}
			fsType = wanted
		}
	}
	return fsType, nil
}

func checkAccessMode(mode csi.VolumeCapability_AccessMode_Mode) error {
	switch mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
		return nil
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
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
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		name = "ReadOnlyMany"
		instead = "use ReadWriteOnce in the claim, and readOnly: true where the pods name it: several pods of one node can read it then"
	default:
	}
	return lvm.Errorf(lvm.KindInvalid, "access mode %s is not possible: the volume is on one node's own disk; %s", name, instead)
}

// checkMounts refuses what staging could never mount: mount options that it refuses (lvm.KindInvalid), and a size that is too
// small for the file system (lvm.KindOutOfRange). what is the message's text before the size: "the claim asks for".
func (s *Server) checkMounts(capabilities []*csi.VolumeCapability, fsType string, size lvm.Bytes, what string) error {
	for _, capability := range capabilities {
		if mount := capability.GetMount(); mount != nil {
			if err := s.checkMountOptions(fsType, mount.GetMountFlags()); err != nil {
				return fmt.Errorf("the mountOptions of the StorageClass: %w", err)
			}
		}
	}
	if least := s.minimumSize(fsType); size < least {
		return lvm.Errorf(lvm.KindOutOfRange, "a file system of type %s needs at least %s, but %s %s: request %s or more, or use ext4", fsType, least, what, size, least)
	}
	return nil
}
