package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// CreateVolume carves a volume on this node (CSI spec, "CreateVolume"). The same call twice gives one volume and the
// same reply. No room, no such group, a volume that is wanted elsewhere and a source on another node are all
// lvm.KindNoRoom, and so is no room for the other volumes of its pod: it makes the provisioner hand the claim back to the scheduler. Where this very node holds the source,
// no other one can help, and no room is lvm.KindOutOfRange: the claim stays here and is tried again. As long as an earlier call
// may have made the volume, every error is lvm.KindBusy (outcome.go).
func (s *Server) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	defer s.asked(req)()
	return noted(s.outcomes, req.GetName(), func() (*csi.CreateVolumeResponse, error) { return s.createVolume(ctx, req) })
}

func (s *Server) createVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	volume, mkfs, err := s.create(ctx, req)
	if err != nil {
		return nil, s.unlessMade(ctx, req.GetName(), err)
	}
	s.outcomes.made(ctx, volume.Name, volume.UUID)
	reply := volumeReply(volume, s.node)
	if mkfs != "" {
		reply.VolumeContext[AttributeMkfs] = mkfs
	}
	return &csi.CreateVolumeResponse{Volume: reply}, nil
}

func (s *Server) create(ctx context.Context, req *csi.CreateVolumeRequest) (volume lvm.Volume, mkfs string, err error) {
	spec, mkfs, err := s.parseCreate(req)
	if err != nil {
		return lvm.Volume{}, "", err
	}
	if err := checkTopology(req.GetAccessibilityRequirements(), s.node); err != nil {
		return lvm.Volume{}, "", err
	}
	if volume, err = s.place(ctx, spec); err != nil {
		return lvm.Volume{}, "", s.refused(ctx, spec.Source, err)
	}
	return volume, mkfs, nil
}

// refused finds the kind for a volume that could not be made here (docs/explanation/design.md, "When things break").
func (s *Server) refused(ctx context.Context, source lvm.ID, err error) error {
	copied := source != lvm.ID{}
	switch kind := lvm.KindOf(err); {
	case kind == lvm.KindNotOurs && copied:
		return lvm.Errorf(lvm.KindNoRoom, "node %s does not hold what the volume is to be a copy of, and a copy can only be made where that is: %w", s.node, err)
	case kind == lvm.KindNoRoom && copied && s.holds(ctx, source):
		return lvm.Errorf(lvm.KindOutOfRange, "node %s holds what the volume is to be a copy of, so it can be made nowhere else, "+
			"and it is tried again until there is room: %w", s.node, err)
	case kind == lvm.KindNoRoom, kind == lvm.KindOutOfRange && copied:
		return s.here(err)
	}
	return err
}

// holds tells whether the snapshot or volume is on this node.
func (s *Server) holds(ctx context.Context, id lvm.ID) bool {
	var err error
	if id.IsSnapshot() {
		_, err = s.snapshots.LookupSnapshot(ctx, id)
	} else {
		_, err = s.volumes.Lookup(ctx, id)
	}
	return err == nil
}
