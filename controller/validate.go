package controller

import (
	"cmp"
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// ValidateVolumeCapabilities confirms the capabilities of an existing volume (CSI spec, "ValidateVolumeCapabilities"). For an
// unsupported capability the reply confirms nothing, and says why. lvm.KindNotFound: the volume does not exist.
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
		return nil, existing(s.node, err)
	}
	if err := s.confirm(ctx, volume, req); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil //nolint:nilerr // the answer is in the reply
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
		MutableParameters:  req.GetMutableParameters(),
	}}, nil
}

// confirm returns an error for the first part of the request that CreateVolume would not accept for the volume.
func (s *Server) confirm(ctx context.Context, volume lvm.Volume, req *csi.ValidateVolumeCapabilitiesRequest) error {
	use, err := s.parseCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return err
	}
	if err := checkAccess(use, volume); err != nil {
		return err
	}
	if err := s.checkMounts(use, volume.Size, "the volume has"); err != nil {
		return err
	}
	if len(req.GetMutableParameters()) > 0 {
		if err := s.confirmMutable(volume, req.GetMutableParameters()); err != nil {
			return err
		}
	}
	if len(req.GetParameters()) > 0 {
		if err := s.confirmParameters(ctx, volume, use.fsType, req.GetParameters()); err != nil {
			return err
		}
	}
	if uuid, ok := req.GetVolumeContext()[api.AttributeUUID]; ok && uuid != volume.UUID {
		return lvm.Errorf(lvm.KindInvalid, "the volume now has UUID %s, not %s: it was created again with the same name", volume.UUID, uuid)
	}
	return nil
}

// confirmParameters returns an error for the first parameter that differs from the volume's.
func (s *Server) confirmParameters(ctx context.Context, volume lvm.Volume, fsType string, values map[string]string) error {
	p, err := parseParameters(values)
	if err != nil {
		return err
	}
	if _, err := s.mkfsOptions(fsType, p.mkfs); err != nil {
		return err
	}
	said, err := lvm.CheckClass(p.class)
	if err != nil {
		return err
	}
	serves, err := s.volumes.Serves(ctx, said.Group, volume.ID)
	switch {
	case err != nil:
		return err
	case !serves:
		return lvm.Errorf(lvm.KindInvalid, "the volume is in the volume group %s, not in %q", volume.Group, said.Group)
	}
	return sameClass(volume.Class, said)
}

// sameClass compares two classes, except for their groups.
func sameClass(has, said lvm.Class) error {
	for _, p := range lvm.Parameters {
		if p.Name != api.ParameterVolumeGroup && p.Value(has) != p.Value(said) {
			return lvm.Errorf(lvm.KindInvalid, "the volume has %s %s, not %s", p.Name, cmp.Or(p.Describe(has), "none"), cmp.Or(p.Describe(said), "none"))
		}
	}
	return nil
}
