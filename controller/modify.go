package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// Limits is what this service needs of the node's LVM to change volumes.
type Limits interface {
	// SetLimits records the limits of a ready volume's I/O and has them applied to the pods that use it. It returns a volume that has
	// them unchanged. An empty uuid stands for any. lvm.KindInvalid: this node cannot apply them.
	SetLimits(ctx context.Context, id lvm.ID, uuid string, limits lvm.Limits) (lvm.Volume, error)
}

// ControllerModifyVolume changes the limits of a volume's I/O (CSI spec, "ControllerModifyVolume"). A repeated call changes nothing.
// lvm.KindInvalid: an unknown parameter or an invalid value.
func (s *Server) ControllerModifyVolume(ctx context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	if s.limits == nil {
		return s.UnimplementedControllerServer.ControllerModifyVolume(ctx, req)
	}
	if req.GetVolumeId() == "" {
		return nil, errMissingID
	}
	if len(req.GetMutableParameters()) == 0 {
		return nil, errNoMutableParameters
	}
	id, err := parseVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	limits, err := lvm.ParseLimits(req.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	if _, err := s.limits.SetLimits(ctx, id, "", limits); err != nil {
		return nil, existing(s.node, err)
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// parseMutable parses the mutable parameters of a new volume.
func (s *Server) parseMutable(parameters map[string]string) (lvm.Limits, error) {
	if s.limits == nil {
		return lvm.Limits{}, errMutableParameters
	}
	return lvm.ParseLimits(parameters)
}

// withLimits gives a volume that an earlier request created the limits of this one.
func (s *Server) withLimits(ctx context.Context, volume lvm.Volume, limits lvm.Limits) (lvm.Volume, error) {
	if volume.Limits == limits {
		return volume, nil
	}
	return s.limits.SetLimits(ctx, volume.ID, volume.UUID, limits)
}

// confirmMutable returns an error for mutable parameters that differ from the volume's.
func (s *Server) confirmMutable(volume lvm.Volume, parameters map[string]string) error {
	limits, err := s.parseMutable(parameters)
	if err == nil && volume.Limits != limits {
		return lvm.Errorf(lvm.KindInvalid, "the volume has other I/O limits: %s", volume.Limits)
	}
	return err
}
