package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nodelvm/nodelvm/lvm"
)

// GetCapacity returns the free capacity of a class on this node, and the largest volume that CreateVolume accepts (CSI spec,
// "GetCapacity"). It returns less while it keeps a refused pod away from this node. Another node's topology, an unknown group,
// unsupported capabilities and missing parameters have the capacity zero. That is no error, because after an error the
// provisioner keeps publishing the old value. A wrong parameter is lvm.KindInvalid.
func (s *Server) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if len(req.GetParameters()) == 0 {
		return capacityReply(lvm.Capacity{}), nil
	}
	parameters, err := parseParameters(req.GetParameters())
	if err != nil {
		return nil, err
	}
	topology := req.GetAccessibleTopology()
	if topology != nil && !reaches(topology, s.node) {
		return capacityReply(lvm.Capacity{}), nil
	}
	if _, err := s.parseCapabilities(req.GetVolumeCapabilities()); err != nil {
		return capacityReply(lvm.Capacity{}), nil //nolint:nilerr // the answer is in the reply
	}
	s.keepReserved()
	capacity, err := s.volumes.Capacity(ctx, parameters.class)
	if err != nil {
		return nil, err
	}
	return capacityReply(s.limited(ctx, parameters.class, capacity)), nil
}

func capacityReply(capacity lvm.Capacity) *csi.GetCapacityResponse {
	return &csi.GetCapacityResponse{
		AvailableCapacity: int64(capacity.Available),
		MaximumVolumeSize: wrapperspb.Int64(int64(capacity.Largest)),
	}
}
