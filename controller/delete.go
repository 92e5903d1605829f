package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// DeleteVolume deletes a volume of this node (CSI spec, "DeleteVolume"). It returns OK for a handle that this driver can never
// have returned, but an error for one of another node's group: after OK the caller would forget a volume that still exists.
// lvm.KindConflict: the cluster has another PersistentVolume with this handle; lvm.KindBusy: the API server does not answer.
func (s *Server) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, errMissingID
	}
	id, err := lvm.ParseID(req.GetVolumeId())
	if err != nil {
		return &csi.DeleteVolumeResponse{}, nil //nolint:nilerr // no volume can have this handle
	}
	lookup := func() error { _, err := s.volumes.Lookup(ctx, id); return err }
	if err := mayDelete(ctx, s.cluster, id, lookup); err != nil {
		return nil, s.here(err)
	}
	if err := s.volumes.Delete(ctx, id); err != nil {
		return nil, s.here(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// mayDelete refuses to delete a volume, snapshot or group snapshot that an object of the cluster (nil: there is none) needs. It accepts one without
// data: the node lacks it, or has begun to create or delete it. So a repeated request succeeds, whatever the cluster has.
func mayDelete(ctx context.Context, cluster Cluster, id lvm.ID, lookup func() error) error {
	if cluster == nil {
		return nil
	}
	refused := cluster.MayDelete(ctx, id)
	if refused != nil && lvm.KindOf(lookup()) == lvm.KindNotFound {
		return nil
	}
	return refused
}
