package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// ControllerExpandVolume expands a volume online (CSI spec, "ControllerExpandVolume"). It does not change a volume that is
// large enough, and returns its size. lvm.KindOutOfRange: this node has insufficient capacity; a smaller request may succeed.
// NodeExpandVolume resizes the file system and the mapping of an encrypted volume; a raw device needs nothing more.
func (s *Server) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	id, required, limit, err := s.parseExpand(req)
	if err != nil {
		return nil, err
	}
	extend := s.volumes.Extend
	if req.GetVolumeCapability().GetMount() == nil { // it is optional, and without it the volume may be a raw device
		extend = s.volumes.ExtendBlock
	}
	volume, err := extend(ctx, id, required, limit)
	if err != nil {
		return nil, existing(s.node, err)
	}
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes:         int64(volume.Size),
		NodeExpansionRequired: req.GetVolumeCapability().GetBlock() == nil || volume.Class.Encryption != lvm.EncryptionNone,
	}, nil
}

func (s *Server) parseExpand(req *csi.ControllerExpandVolumeRequest) (id lvm.ID, required, limit lvm.Bytes, err error) {
	if req.GetVolumeId() == "" {
		return id, 0, 0, errMissingID
	}
	if req.GetCapacityRange() == nil {
		return id, 0, 0, lvm.Errorf(lvm.KindInvalid, "the request has no capacity_range; say how large the volume shall be")
	}
	if required, limit, err = parseSize(req.GetCapacityRange()); err != nil {
		return id, 0, 0, err
	}
	if req.GetVolumeCapability() != nil { // it is optional
		if _, err := s.parseCapabilities([]*csi.VolumeCapability{req.GetVolumeCapability()}); err != nil {
			return id, 0, 0, err
		}
	}
	id, err = parseVolume(req.GetVolumeId())
	return id, required, limit, err
}
