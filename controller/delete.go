package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// DeleteVolume deletes a volume of this node (CSI spec, "DeleteVolume"). A handle that this driver can never have
// handed out names nothing: OK. A handle of another node's group is an error, for OK would make the caller forget a
// volume that still exists.
func (s *Server) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, errMissingID
	}
	id, err := lvm.ParseID(req.GetVolumeId())
	if err != nil {
		return &csi.DeleteVolumeResponse{}, nil //nolint:nilerr // what cannot exist is gone
	}
	if err := s.volumes.Delete(ctx, id); err != nil {
		return nil, s.here(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}
