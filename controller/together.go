package controller

import (
	"context"
	"errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// FitTogether returns nil if this node has capacity for the volumes of all these claims of a pod, though csi-provisioner requests some of
// them for other claims. If the error is lvm.KindInsufficientCapacity, GetCapacity keeps the pod away for some time, as in the cases of
// createWithPeers. A claim with an invalid request does not count.
func (s *Server) FitTogether(ctx context.Context, namespace, podUID string, claims []api.PodClaim) error {
	var specs []lvm.Spec
	for _, c := range claims {
		if spec, err := s.specOfClaim(c, namespace); err == nil && !c.Bound {
			specs = append(specs, spec)
		}
	}
	if len(specs) < 2 {
		return nil
	}
	err := s.volumes.Fits(ctx, specs)
	var unplaceable *lvm.UnplaceableError
	if lvm.KindOf(err) == lvm.KindInsufficientCapacity && errors.As(err, &unplaceable) {
		s.refusals.add(podUID, specs[0], specs[1:], unplaceable.Spec)
	}
	return err
}
