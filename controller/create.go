package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// CreateVolume carves a volume on this node (CSI spec, "CreateVolume"). The same call twice gives one volume and the
// same reply. No room, no such group and a volume that is wanted elsewhere are all lvm.KindNoRoom: it makes the
// provisioner hand the claim back to the scheduler.
func (s *Server) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	spec, err := parseCreate(req)
	if err != nil {
		return nil, err
	}
	if err := checkTopology(req.GetAccessibilityRequirements(), s.node); err != nil {
		return nil, err
	}
	volume, err := s.volumes.Create(ctx, spec)
	if lvm.KindOf(err) == lvm.KindNoRoom {
		return nil, fmt.Errorf("node %s: %w", s.node, err)
	}
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: volumeReply(volume, s.node)}, nil
}
