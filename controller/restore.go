package controller

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// mayRestore refuses to restore a snapshot for a claim unless the cluster's objects allow it. The handle in the request proves
// nothing: it comes from an object that another node may have written (kube/restore.go). A clone needs no such check: the
// handle of its source comes from a PersistentVolume, and ends in the UID of the claim that the volume was created for
// (deploy/chart/nodelvm/templates/noderestriction.yaml); no other claim's volume has that name.
func (s *Server) mayRestore(ctx context.Context, spec lvm.Spec) error {
	if _, err := s.snapshots.LookupSnapshot(ctx, spec.Source); err != nil {
		return err // usually the snapshot of another node: the provisioner retries the claim there
	}
	namespace, claim, uid := claimKey(spec.Claim, spec.Name)
	if claim == "" {
		return lvm.Errorf(lvm.KindInvalid, "the request for a copy of snapshot %s does not name the claim that it is for: "+
			"run csi-provisioner with --extra-create-metadata", spec.Source)
	}
	return s.here(s.cluster.MayRestore(ctx, namespace, claim, uid, spec.Source))
}
