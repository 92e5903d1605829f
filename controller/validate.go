package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// ValidateVolumeCapabilities confirms what an existing volume can do (CSI spec, "ValidateVolumeCapabilities"). What it
// cannot do is no error: the reply confirms nothing and says why. A volume that is not there is lvm.KindNotFound.
func (s *Server) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, errMissingID
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, errMissingCapabilities
	}
	id, err := lvm.ParseID(req.GetVolumeId())
	if err != nil {
		return nil, lvm.Errorf(lvm.KindNotFound, "there is no such volume: %w", err)
	}
	volume, err := s.volumes.Lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := confirm(volume, req); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil //nolint:nilerr // the answer is in the reply
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
	}}, nil
}

// confirm says what of the request does not hold for the volume.
func confirm(volume lvm.Volume, req *csi.ValidateVolumeCapabilitiesRequest) error {
	if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
		return err
	}
	if len(req.GetMutableParameters()) > 0 {
		return errMutableParameters
	}
	if len(req.GetParameters()) > 0 {
		class, _, err := parseParameters(req.GetParameters())
		if err != nil {
			return err
		}
		if class.Layout != volume.Class.Layout || class.Wipe != volume.Class.Wipe {
			return lvm.Errorf(lvm.KindInvalid, "the volume is %s with wipe %s, not %s with wipe %s",
				volume.Class.Layout, volume.Class.Wipe, class.Layout, class.Wipe)
		}
	}
	if uuid, ok := req.GetVolumeContext()[AttributeUUID]; ok && uuid != volume.UUID {
		return lvm.Errorf(lvm.KindInvalid, "the volume now has UUID %s, not %s: it was made anew under the same name", volume.UUID, uuid)
	}
	return nil
}
