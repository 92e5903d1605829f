package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// CreateVolume creates a volume on this node (CSI spec, "CreateVolume"). A repeated call returns the same volume and reply.
// lvm.KindInsufficientCapacity makes the provisioner return the claim to the scheduler: insufficient capacity for the volume or
// for the pod's other volumes, an unknown group, another node's topology, a source on another node. If this node has the
// source, no other node can help, and insufficient capacity is lvm.KindOutOfRange: the provisioner retries here. While an
// earlier call may have created a volume that the caller does not know of, every error is lvm.KindBusy (outcome.go).
func (s *Server) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	defer s.asked(req)()
	return noted(s.outcomes, req.GetName(), func() (*csi.CreateVolumeResponse, error) { return s.createVolume(ctx, req) })
}

func (s *Server) createVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	volume, mkfs, err := s.provision(ctx, req)
	if err != nil {
		return nil, s.unlessMade(ctx, req.GetName(), err)
	}
	s.outcomes.made(ctx, volume.Name, volume.UUID)
	reply := volumeReply(volume, s.node)
	if mkfs != "" {
		reply.VolumeContext[api.AttributeMkfsOptions] = mkfs
	}
	return &csi.CreateVolumeResponse{Volume: reply}, nil
}

func (s *Server) provision(ctx context.Context, req *csi.CreateVolumeRequest) (volume lvm.Volume, mkfs string, err error) {
	spec, mkfs, err := s.parseCreate(req)
	if err != nil {
		return lvm.Volume{}, "", err
	}
	if err := checkTopology(req.GetAccessibilityRequirements(), s.node); err != nil {
		return lvm.Volume{}, "", err
	}
	if (spec.Source != lvm.ID{}) && !spec.Source.IsSnapshot() {
		end, err := s.prepareThin(ctx, spec.Source, lvm.LVName(spec.Name))
		if err != nil {
			return lvm.Volume{}, "", err
		}
		defer end()
	}
	anywhere := spec.Source != lvm.ID{} && s.isPlacedByScheduler(req, spec.Access)
	if volume, err = s.createWithPeers(ctx, spec, anywhere); err != nil {
		return lvm.Volume{}, "", s.refused(ctx, spec, anywhere, err)
	}
	if len(req.GetMutableParameters()) > 0 {
		volume, err = s.withLimits(ctx, volume, spec.Limits)
	}
	return volume, mkfs, err
}

// refused returns the error for a volume that this node cannot create (docs/explanation/design.md, "When things break").
func (s *Server) refused(ctx context.Context, spec lvm.Spec, anywhere bool, err error) error {
	source, copied := spec.Source, spec.Source != lvm.ID{}
	switch kind := lvm.KindOf(err); {
	case anywhere && s.lacksCapacity(ctx, spec, err):
		return lvm.Errorf(lvm.KindInsufficientCapacity, "node %s: %w", s.node, err)
	case (kind == lvm.KindNotLocal || kind == lvm.KindNotManaged) && copied:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the source is not on node %s, and a volume must be created on the node of its source: %w", s.node, err)
	case kind == lvm.KindInsufficientCapacity && copied && s.holds(ctx, source):
		return lvm.Errorf(lvm.KindOutOfRange, "node %s has the source, so the volume can only be created there, and the request is retried until the capacity suffices: %w", s.node, err)
	case kind == lvm.KindInsufficientCapacity, kind == lvm.KindOutOfRange && copied:
		return s.here(err)
	}
	return s.nameThinClass(err)
}

// holds reports whether the snapshot or volume is on this node.
func (s *Server) holds(ctx context.Context, id lvm.ID) bool { return s.absence(ctx, id) == nil }

// absence returns why a snapshot or volume is not on this node; nil: it is.
func (s *Server) absence(ctx context.Context, id lvm.ID) (err error) {
	if id.IsSnapshot() {
		_, err = s.snapshots.LookupSnapshot(ctx, id)
	} else {
		_, err = s.volumes.Lookup(ctx, id)
	}
	return err
}
