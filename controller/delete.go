package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// DeleteVolume deletes a volume of this node (CSI spec, "DeleteVolume"). It returns OK for a handle that this driver can never
// have returned, but an error for one of another node's group: after OK the caller would forget a volume that still exists.
func (s *Server) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, errMissingID
	}
	id, err := lvm.ParseID(req.GetVolumeId())
	if err != nil {
		return &csi.DeleteVolumeResponse{}, nil //nolint:nilerr // no volume can have this handle
	}
	if err := s.volumes.Delete(ctx, id); err != nil {
		return nil, s.here(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}
