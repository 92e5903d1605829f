package controller

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// fileSystems are the ones that a node can make and mount; the first is the default.
var fileSystems = []string{"ext4", "xfs"}

// checkCapabilities refuses (lvm.KindInvalid) every use that a disk of one node cannot serve.
func checkCapabilities(capabilities []*csi.VolumeCapability) error {
	fsType := ""
	for _, capability := range capabilities {
		if err := checkAccessMode(capability.GetAccessMode().GetMode()); err != nil {
			return err
		}
		switch {
		case capability.GetBlock() != nil:
		case capability.GetMount() == nil:
			return lvm.Errorf(lvm.KindInvalid, "a volume capability has no access type; say mount or block")
		default:
			wanted := capability.GetMount().GetFsType()
			if wanted == "" {
				wanted = fileSystems[0]
			}
			if !slices.Contains(fileSystems, wanted) {
				return lvm.Errorf(lvm.KindInvalid, "the file system type %q is not supported; csi.storage.k8s.io/fstype can be one of %q", wanted, fileSystems)
			}
			if fsType != "" && fsType != wanted {
				return lvm.Errorf(lvm.KindInvalid, "one volume cannot hold two file systems, %s and %s", fsType, wanted)
			}
			fsType = wanted
		}
	}
	return nil
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
