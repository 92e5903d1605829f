package controller

import (
	"context"
	"strings"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// mayRestore refuses a copy of a snapshot on this node that the cluster's objects do not give to the claim. The handle in the
// request proves nothing: it comes from an object that another node may have written (kube/restore.go). A clone needs no such
// question: the handle of its source comes from a PersistentVolume, whose handle ends in the UID of the claim that it was made
// for (deploy/chart/nodelvm/templates/noderestriction.yaml), and no other claim's volume has that name.
func (s *Server) mayRestore(ctx context.Context, spec lvm.Spec) error {
	if _, err := s.snapshots.LookupSnapshot(ctx, spec.Source); err != nil {
		return err // another node's, most often: the claim goes there
	}
	namespace, claim, ok := strings.Cut(spec.Claim, "/")
	if !ok {
		return lvm.Errorf(lvm.KindInvalid, "the request for a copy of snapshot %s does not name the claim that it is for: "+
			"run csi-provisioner with --extra-create-metadata", spec.Source)
	}
	return s.here(s.cluster.MayRestore(ctx, namespace, claim, strings.TrimPrefix(spec.Name, api.PrefixVolume), spec.Source))
}
