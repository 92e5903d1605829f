package controller

import (
	"cmp"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// defaultFileSystem is made where a capability names none.
const defaultFileSystem = "ext4"

// checkCapabilities refuses (lvm.KindInvalid) every use that a disk of one node cannot serve, and tells the file system
// that the others want, empty for a raw device.
func (s *Server) checkCapabilities(capabilities []*csi.VolumeCapability) (fsType string, err error) {
	for _, capability := range capabilities {
		if err := checkAccessMode(capability.GetAccessMode().GetMode()); err != nil {
			return "", err
		}
		switch {
		case capability.GetBlock() != nil:
		case capability.GetMount() == nil:
			return "", lvm.Errorf(lvm.KindInvalid, "a volume capability has no access type; say mount or block")
		default:
			wanted := cmp.Or(capability.GetMount().GetFsType(), defaultFileSystem)
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
		return lvm.Errorf(lvm.KindInvalid, "access mode %s is not possible: the volume is on one node's own disk; "+
			"use ReadWriteOnce or ReadWriteOncePod in the claim", mode)
	case csi.VolumeCapability_AccessMode_UNKNOWN:
	}
	return lvm.Errorf(lvm.KindInvalid, "a volume capability has no known access mode (%s)", mode)
}
