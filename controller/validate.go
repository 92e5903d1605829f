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
	id, err := parseVolume(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	volume, err := s.volumes.Lookup(ctx, id)
	if err != nil {
		return nil, s.existing(err)
	}
	if err := s.confirm(volume, req); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil //nolint:nilerr // the answer is in the reply
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
	}}, nil
}

// confirm says what of the request does not hold for the volume.
func (s *Server) confirm(volume lvm.Volume, req *csi.ValidateVolumeCapabilitiesRequest) error {
	if _, err := s.checkCapabilities(req.GetVolumeCapabilities()); err != nil {
		return err
	}
	if len(req.GetMutableParameters()) > 0 {
		return errMutableParameters
	}
	if len(req.GetParameters()) > 0 {
		p, err := parseParameters(req.GetParameters())
		if err != nil {
			return err
		}
		if err := sameClass(volume.Class, p.class); err != nil {
			return err
		}
	}
	if uuid, ok := req.GetVolumeContext()[AttributeUUID]; ok && uuid != volume.UUID {
		return lvm.Errorf(lvm.KindInvalid, "the volume now has UUID %s, not %s: it was made anew under the same name", volume.UUID, uuid)
	}
	return nil
}

// sameClass compares what the parameters say with what the volume is; what they leave out is not compared.
func sameClass(has, said lvm.Class) error {
	for _, field := range []struct {
		name      string
		has, said any
		silent    bool
	}{
		{parameterLayout, has.Layout, said.Layout, said.Layout == ""},
		{parameterWipe, has.Wipe, said.Wipe, said.Wipe == ""},
		{parameterStripes, has.Stripes, said.Stripes, said.Stripes == 0},
		{parameterStripeSize, has.StripeSize, said.StripeSize, said.StripeSize == 0},
		{parameterMirrors, has.Mirrors, said.Mirrors, said.Mirrors == 0},
		{parameterPool, has.Pool, said.Pool, said.Pool == ""},
	} {
		if !field.silent && field.has != field.said {
			return lvm.Errorf(lvm.KindInvalid, "the volume has %s %v, not %v", field.name, field.has, field.said)
		}
	}
	return nil
}
