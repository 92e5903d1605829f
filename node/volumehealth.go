package node

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/internal/csihealth"
)

// NodeGetVolumeHealth returns the conditions of a volume, whether a pod uses it or not (CSI spec, "NodeGetVolumeHealth"). It starts no
// process, and reads the disks only if the last reading has no such volume. lvm.KindNotFound: this node has no such volume.
func (s *Server) NodeGetVolumeHealth(ctx context.Context, req *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if s.conditions == nil {
		return s.UnimplementedNodeServer.NodeGetVolumeHealth(ctx, req)
	}
	if req.GetVolumeId() == "" {
		return nil, errNoVolume
	}
	id, err := parseHandle(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	found, err := s.conditions(ctx)
	if err != nil {
		return nil, err
	}
	health := csihealth.Volume(id, found.Conditions)
	if len(health.GetHealthStatuses()) == 0 && !found.Volumes[id] { // it may be new
		if _, err := s.lookup(ctx, id); err != nil {
			return nil, err
		}
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

// NodeGetStorageHealth returns the conditions of this node's volume groups (CSI spec, "NodeGetStorageHealth"). It starts no process.
func (s *Server) NodeGetStorageHealth(ctx context.Context, req *csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	if s.conditions == nil {
		return s.UnimplementedNodeServer.NodeGetStorageHealth(ctx, req)
	}
	found, err := s.conditions(ctx)
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetStorageHealthResponse{BackendHealth: csihealth.Storage(found.Conditions)}, nil
}
