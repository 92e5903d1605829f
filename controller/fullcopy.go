package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// A snapshot or volume is on the disks of one node, so a claim is restored or cloned there. With the class parameter restoreOnOtherNodes the scheduler
// chooses the node of such a claim instead, as that of an empty one. If it is not the source's, the volume becomes a full copy.

// FullCopies copies snapshots and volumes of other nodes; a copy takes minutes, so csi-provisioner asks until it is complete.
type FullCopies interface {
	// Copy creates the volume of a claim, and begins or continues its copy from spec.Source, which is on another node. nil: the volume is complete
	// and ready. lvm.KindBusy: the copy is under way, or cannot go on now. Any other kind: there is no volume; lvm.KindInsufficientCapacity: this
	// node has no capacity; lvm.KindNotFound, lvm.KindInvalid: the cluster's objects do not give the source to a claim of this node.
	Copy(ctx context.Context, spec lvm.Spec) error
}

// errNoFullCopies refuses the class rather than its restores: its users would learn of it on the day on which they restore.
var errNoFullCopies = lvm.Errorf(lvm.KindInvalid, "the StorageClass has %s: \"true\", and this driver copies no volumes between nodes; enable that (chart value move.enabled), or create the class without the parameter",
	api.ParameterRestoreOnOtherNodes)

var errThinAlone = lvm.Errorf(lvm.KindInvalid, "the StorageClass has %s: \"true\", and only thin volumes are restored from snapshots, or cloned; set layout: thin, or remove the parameter",
	api.ParameterRestoreOnOtherNodes)

// isPlacedByScheduler reports whether a restore or clone can be created on any node. A read-only copy shares its source's blocks, and is on its node.
func (s *Server) isPlacedByScheduler(req *csi.CreateVolumeRequest, access lvm.Access) bool {
	return s.cluster != nil && s.copiesFully(req.GetParameters(), access != lvm.AccessWritable)
}

// copiesFully reports whether restores and clones of a class with these parameters become full copies on other nodes than their source's.
func (s *Server) copiesFully(parameters map[string]string, readOnly bool) bool {
	return s.fullCopies != nil && parameters[api.ParameterRestoreOnOtherNodes] == "true" && !readOnly
}

// fullCopy copies the source of another node, if this node has capacity for the volume and its peers, and reserves that until the copy begins: its source
// may not answer for long, and the peers may be created meanwhile. nil if the volume is complete, or the source is here: CreateWithPeers finds the one, or
// shares the other's blocks.
func (s *Server) fullCopy(ctx context.Context, spec lvm.Spec, peers []lvm.Spec) error {
	if lvm.KindOf(s.absence(ctx, spec.Source)) != lvm.KindNotLocal {
		return nil // CreateWithPeers reports it
	}
	p, err := s.volumes.Presence(ctx, spec.Name)
	if err != nil || p.Made {
		return err
	}
	if p.Volume == nil {
		if err := s.volumes.Reserve(ctx, whole(spec), peers); err != nil {
			return err
		}
	}
	return s.fullCopies.Copy(ctx, spec)
}

// whole is the spec of a full copy, which needs as much capacity as an empty volume.
func whole(spec lvm.Spec) lvm.Spec {
	spec.Source = lvm.ID{}
	return spec
}

// lacksCapacity reports whether the volume could be restored here if this node had more capacity.
func (s *Server) lacksCapacity(ctx context.Context, spec lvm.Spec, err error) bool {
	kind := lvm.KindOf(err)
	return kind == lvm.KindInsufficientCapacity || kind == lvm.KindOutOfRange && lvm.KindOf(s.volumes.Fits(ctx, []lvm.Spec{whole(spec)})) == lvm.KindInsufficientCapacity
}
