package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/internal/csihealth"
	"github.com/nodelvm/nodelvm/lvm"
)

// maxHealthPage limits the entries of a reply: with the longest texts they are smaller than a gRPC client's limit of 4 MiB.
const maxHealthPage = 128

// ControllerGetVolumeHealth returns the conditions of a volume on this node (CSI spec, "ControllerGetVolumeHealth"). It starts no process, and
// reads the disks only if the last reading has no such volume.
func (s *Server) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if s.conditions == nil {
		return s.UnimplementedControllerServer.ControllerGetVolumeHealth(ctx, req)
	}
	if req.GetVolumeId() == "" {
		return nil, errMissingID
	}
	id, err := parseVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	found, err := s.conditions(ctx)
	if err != nil {
		return nil, s.here(err)
	}
	health := csihealth.Volume(id, found.Conditions)
	if len(health.GetHealthStatuses()) == 0 && !found.Volumes[id] { // it may be new; one whose group is lost has a status
		if _, err := s.volumes.Lookup(ctx, id); err != nil {
			return nil, existing(s.node, err)
		}
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// ControllerListVolumeHealth lists this node's volumes that have a condition (CSI spec, "ControllerListVolumeHealth"). Pages are as those of
// ListVolumes, and have at most maxHealthPage entries. It starts no process.
func (s *Server) ControllerListVolumeHealth(ctx context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	if s.conditions == nil {
		return s.UnimplementedControllerServer.ControllerListVolumeHealth(ctx, req)
	}
	if err := checkPage(req.GetMaxEntries(), req.GetStartingToken()); err != nil {
		return nil, err
	}
	found, err := s.conditions(ctx)
	if err != nil {
		return nil, s.here(err)
	}
	limit := maxHealthPage
	if wanted := int(req.GetMaxEntries()); wanted > 0 {
		limit = min(limit, wanted)
	}
	page, next := pageOf(csihealth.Unhealthy(found.Conditions), func(id lvm.ID) lvm.ID { return id }, req.GetStartingToken(), limit)
	reply := &csi.ControllerListVolumeHealthResponse{NextToken: next}
	for _, id := range page {
		reply.Entries = append(reply.Entries, csihealth.Volume(id, found.Conditions))
	}
	return reply, nil
}
