package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// The driver creates all volumes of a pod on one node, or none. A volume never leaves its node: if the driver created one where
// the next does not fit, the pod could not be scheduled. For the same reason the volumes of pods that share a claim are one
// request.
//
//	CreateVolume -> podClaims (which other claims does the pod need?) -> mayMake (is the pod bound to another node already?
//	may the claim use the snapshot?) -> CreateWithPeers (all fit, or none is created) -> refused: the peers too, and GetCapacity
//	directs the pod elsewhere
//
// An event on the claim reports what the driver cannot resolve.

// createWithPeers creates the volume here, if this node has capacity for its peers too.
// anywhere is as isPlacedByScheduler says.
func (s *Server) createWithPeers(ctx context.Context, spec lvm.Spec, anywhere bool) (lvm.Volume, error) {
	claims, err := s.podClaims(ctx, spec)
	if err != nil {
		return lvm.Volume{}, err
	}
	if err := s.mayMake(ctx, spec, claims, anywhere); err != nil {
		return lvm.Volume{}, err
	}
	peers := s.specsOf(spec, claims)
	if anywhere {
		err = s.fullCopy(ctx, spec, peers)
	}
	var volume lvm.Volume
	if err == nil {
		volume, err = s.volumes.CreateWithPeers(ctx, spec, peers)
	}
	switch {
	case err == nil:
		s.refusals.forget(claims.PodUID)
	case lvm.KindOf(err) == lvm.KindInsufficientCapacity && len(claims.Claims) > 0:
		err = lvm.Errorf(lvm.KindInsufficientCapacity, "%s claims %s on one node: %w", needOf(claims), namesOf(spec, claims), err)
		var unplaceable *lvm.UnplaceableError
		if errors.As(err, &unplaceable) {
			s.refusals.add(claims.PodUID, spec, peers, unplaceable.Spec)
		}
		s.warnOfCreated(ctx, spec, claims, anywhere, err)
	}
	return volume, err
}

// asked informs the cluster that a request has arrived; the caller calls answered when it ends, whatever the result.
func (s *Server) asked(req *csi.CreateVolumeRequest) (answered func()) {
	namespace, claim, ok := strings.Cut(claimOf(req.GetParameters()), "/")
	if !ok || s.cluster == nil {
		return func() {}
	}
	return s.cluster.Asked(namespace, claim)
}

// mayMake refuses a volume that the driver must not create here: the pod's other claims are on another node, the claim may
// not use the snapshot, or not have an empty volume. It accepts a complete volume: an earlier call passed the checks, and if this one refused the volume
// that the driver has reported, the volume would leak. lvm.KindBusy: the answer is unknown.
func (s *Server) mayMake(ctx context.Context, spec lvm.Spec, claims api.PodClaims, anywhere bool) error {
	copied, refused := s.cluster != nil && spec.Source.IsSnapshot(), s.mayCreate(spec)
	if len(claims.Claims) == 0 && !copied && refused == nil {
		return nil
	}
	p, err := s.volumes.Presence(ctx, spec.Name)
	if err != nil || p.Made {
		return err
	}
	if refused != nil {
		return refused
	}
	if err := s.checkPeers(ctx, spec, claims, anywhere); err != nil {
		return err
	}
	if begun := p.Volume != nil && p.Volume.Source == spec.Source; begun || !copied {
		return nil
	}
	if err := s.mayRestore(ctx, spec); !anywhere || lvm.KindOf(err) != lvm.KindNotLocal {
		return err
	}
	return nil // FullCopies asks the cluster itself
}

// mayCreate refuses an empty volume for a claim that asked for data.
func (s *Server) mayCreate(spec lvm.Spec) error {
	if s.cluster == nil || spec.Source != (lvm.ID{}) {
		return nil
	}
	return s.here(s.cluster.MayCreate(claimKey(spec.Claim, spec.Name)))
}

// podClaims reads the peers from the cluster. lvm.KindBusy: the API server does not answer; retry. A volume without its peers
// may strand its pod, and without the API server no claim could be bound to it anyway.
func (s *Server) podClaims(ctx context.Context, spec lvm.Spec) (api.PodClaims, error) {
	namespace, claim, _ := claimKey(spec.Claim, spec.Name)
	if claim == "" || s.cluster == nil {
		return api.PodClaims{}, nil
	}
	claims, err := s.cluster.PodClaims(ctx, namespace, claim)
	if err != nil {
		return api.PodClaims{}, lvm.Errorf(lvm.KindBusy, "cannot determine whether the pod of claim %s has other claims, which must be on the same node; "+
			"no volume is created before that is known: %w", spec.Claim, err)
	}
	return claims, nil
}

// checkPeers refuses a volume if a peer is, or will soon be, on another node; the scheduler then moves the pod to that node. A
// restored or cloned volume cannot follow: the driver can create it only on the node of its source. Unbound peers follow it.
func (s *Server) checkPeers(ctx context.Context, spec lvm.Spec, claims api.PodClaims, anywhere bool) error {
	copied := spec.Source != lvm.ID{} && !anywhere
	elsewhere := func(c api.PodClaim) bool {
		return c.Node != "" && c.Node != s.node && (c.Bound || !copied && (s.staysWithSource(c) || !yields(c, spec)))
	}
	i := slices.IndexFunc(claims.Claims, elsewhere)
	switch {
	case i < 0 && copied:
		return nil
	case i < 0:
		return s.checkSources(ctx, spec, claims)
	}
	other := claims.Claims[i]
	what := "is about to be created"
	if other.Bound {
		what = "is bound to a volume"
	}
	err := lvm.Errorf(lvm.KindInsufficientCapacity, "claim %s %s on node %s, and %s both on one node", other.Name, what, other.Node, needOf(claims))
	here := slices.IndexFunc(claims.Claims, func(c api.PodClaim) bool { return c.Bound && c.Node == s.node })
	switch {
	case other.Bound && here >= 0:
		s.warnClaim(ctx, spec, api.ReasonPodVolumesOnDifferentNodes, fmt.Sprintf("%s: the volume of claim %s is on node %s, the volume of claim %[4]s on node %[5]s. "+
			"Move the volume of claim %[4]s to node %[3]s (docs/howto/move.md). Or delete the claim whose data you can lose, and its pods: the new volume is created on the node of the other.",
			unschedulable(claims), claims.Claims[here].Name, s.node, other.Name, other.Node))
	case other.Bound && copied && s.holds(ctx, spec.Source):
		s.warnClaim(ctx, spec, api.ReasonPodVolumesOnDifferentNodes, fmt.Sprintf("%s: the data source of this claim is on node %s, and the volume of claim %s on node %s. "+
			"Move the volume of claim %[3]s to node %[2]s (docs/howto/move.md). Or, if you can lose its data, delete claim %[3]s and its pods: the new volume is created on node %[2]s.",
			unschedulable(claims), s.node, other.Name, other.Node))
	}
	return err
}

// sourcesMost is how many sources of peers one request asks for, if none has a node: a pod may have hundreds of claims with sources that do not exist.
const sourcesMost = 8

// checkSources refuses a volume if a peer can be created only on another node, that of its source. The scheduler does not know that, and selects any node
// for the peer, until the node of the source selects itself (kube/pin.go). The first source that has a node decides: with sources on several nodes the
// pod runs on none. lvm.KindBusy: a source has no node yet. The source may be a claim that waits with this one, which creates it.
func (s *Server) checkSources(ctx context.Context, spec lvm.Spec, claims api.PodClaims) error {
	if slices.ContainsFunc(claims.Claims, func(c api.PodClaim) bool { return c.Bound && c.Node == s.node }) {
		return nil // the pod runs here, or nowhere
	}
	namespace, name, _ := claimKey(spec.Claim, spec.Name)
	waits := func(claim string) bool {
		return claim == name || slices.ContainsFunc(claims.Claims, func(peer api.PodClaim) bool { return peer.Name == claim })
	}
	var undecided error
	asked := 0
	for _, c := range claims.Claims {
		if !s.staysWithSource(c) || asked == sourcesMost || c.FromClaim != "" && waits(c.FromClaim) {
			continue
		}
		asked++
		node, err := s.cluster.SourceNode(ctx, namespace, c)
		switch {
		case err != nil && undecided == nil:
			undecided = lvm.Errorf(lvm.KindOf(err), "%s this claim and claim %s on one node, that of the source of claim %[2]s, which is not known yet: %w%[4]s", needOf(claims), c.Name, err, s.inTurn(ctx, namespace, c, waits))
		case node == s.node:
			return nil
		case node != "":
			return lvm.Errorf(lvm.KindInsufficientCapacity, "the source of claim %s is on node %s, the only one where that claim can be created, and %s both on one node", c.Name, node, needOf(claims))
		}
	}
	return undecided
}

// inTurn continues a sentence about a clone whose source has no volume yet, if the source's pod waits for a clone of one of these claims.
func (s *Server) inTurn(ctx context.Context, namespace string, clone api.PodClaim, waits func(claim string) bool) string {
	if clone.FromClaim == "" {
		return ""
	}
	source, err := s.cluster.PodClaims(ctx, namespace, clone.FromClaim)
	i := slices.IndexFunc(source.Claims, func(c api.PodClaim) bool { return s.staysWithSource(c) && waits(c.FromClaim) })
	if err != nil || i < 0 {
		return ""
	}
	return fmt.Sprintf("; and %s that claim and claim %s, a clone of claim %s, on one node, so neither begins: delete that pod, and first start one that uses claim %s alone",
		needOf(source), source.Claims[i].Name, source.Claims[i].FromClaim, clone.FromClaim)
}

// staysWithSource reports whether the driver creates the volume of a claim on the node of its source alone.
func (s *Server) staysWithSource(c api.PodClaim) bool {
	copied := !c.Bound && !c.ByOthers && (c.FromSnapshot != "" || c.FromClaim != "")
	return copied && !s.copiesFully(c.Parameters, slices.Contains(c.AccessModes, "ReadOnlyMany"))
}

// yields reports whether a claim with another selected node, which no pod uses together with this one, must move to this node.
// Of two such claims the one whose UID sorts first stays, so that they do not move to each other's node.
func yields(c api.PodClaim, spec lvm.Spec) bool {
	return c.Indirect && strings.TrimPrefix(spec.Name, api.PrefixVolume) < c.UID
}

// warnOfCreated warns if the pod cannot go elsewhere: some of its volumes are here, and the node lacks capacity for the others. anywhere is as
// isPlacedByScheduler says.
func (s *Server) warnOfCreated(ctx context.Context, spec lvm.Spec, claims api.PodClaims, anywhere bool, refusal error) {
	volumes, err := s.volumes.List(ctx)
	if err != nil {
		volumes = nil // the event still names the bound claims
	}
	var made []string
	for _, c := range claims.Claims {
		there := func(v lvm.Volume) bool { return v.Name == api.PrefixVolume+c.UID }
		if c.Bound && c.Node == s.node || slices.ContainsFunc(volumes, there) {
			made = append(made, c.Name)
		}
	}
	if len(made) == 0 {
		return
	}
	names, move := strings.Join(made, " and "), ", or move its volume to a node with capacity for all (docs/howto/move.md)"
	if spec.Source != (lvm.ID{}) && !anywhere || slices.ContainsFunc(claims.Claims, s.staysWithSource) {
		move = "" // to no node: the source is here
	}
	s.warnClaim(ctx, spec, api.ReasonInsufficientCapacityForPod, fmt.Sprintf("%s: the volume of claim %s is on node %s, which has insufficient capacity for this claim. "+
		"Free space on node %[3]s%[4]s. Or, if you can lose its data, delete claim %[2]s and its pods: all volumes are then created on one node. (%[5]v)",
		unschedulable(claims), names, s.node, move, refusal))
}

func (s *Server) warnClaim(ctx context.Context, spec lvm.Spec, reason, message string) {
	namespace, claim, uid := claimKey(spec.Claim, spec.Name)
	s.cluster.Warn(ctx, namespace, claim, uid, reason, message)
}

// limited returns the capacity to publish for a class: less than there is if a refused pod would only return, because each of
// its claims fits here alone. The limit ends when all fit, or when one of the claims no longer waits.
func (s *Server) limited(ctx context.Context, class lvm.Class, capacity lvm.Capacity) lvm.Capacity {
	for _, r := range s.refusals.against(class) {
		if !s.waiting(r.specs) || s.volumes.Fits(ctx, r.specs) == nil {
			s.refusals.forget(r.pod)
			continue
		}
		capacity.Largest = min(capacity.Largest, r.below-1)
	}
	return capacity
}

// keepReserved renews the reservations for claims that have this node as their selected node and wait for their volumes:
// csi-provisioner will request those.
func (s *Server) keepReserved() {
	if s.cluster == nil {
		return
	}
	s.volumes.KeepReserved(func(v lvm.Volume) bool { return s.cluster.WaitingHere(claimKey(v.Claim, v.Name)) })
}

// waiting reports whether the claims of all these volumes still wait for them.
func (s *Server) waiting(specs []lvm.Spec) bool {
	return !slices.ContainsFunc(specs, func(spec lvm.Spec) bool { return !s.cluster.Waiting(claimKey(spec.Claim, spec.Name)) })
}

// specsOf returns the specs of the peers that csi-provisioner will request. It skips an invalid one:
// the peer's own request reports the error. The volume of a claim that others bind is created for another claim: a reservation for it
// would hold capacity that no request uses.
func (s *Server) specsOf(spec lvm.Spec, claims api.PodClaims) (peers []lvm.Spec) {
	namespace, _, _ := claimKey(spec.Claim, spec.Name)
	for _, c := range claims.Claims {
		if c.Bound || c.ByOthers {
			continue
		}
		if peer, err := s.specOfClaim(c, namespace); err == nil {
			peers = append(peers, peer)
		}
	}
	return peers
}

// claimModes are the access modes of the claims of writable volumes.
var claimModes = []string{"ReadWriteOnce", "ReadWriteOncePod"}

// specOfClaim returns the spec of the volume that csi-provisioner will request for a claim. It omits the source of a restored or
// cloned volume, which needs as much capacity as an empty one; a read-only copy of a snapshot needs what the replay of its journal may write.
func (s *Server) specOfClaim(c api.PodClaim, namespace string) (lvm.Spec, error) {
	readOnly := slices.Equal(c.AccessModes, []string{"ReadOnlyMany"}) && (c.FromSnapshot != "" || c.FromClaim != "")
	unusable := func(mode string) bool { return !slices.Contains(claimModes, mode) && !readOnly }
	if len(c.AccessModes) == 0 || slices.ContainsFunc(c.AccessModes, unusable) || c.Size <= 0 {
		return lvm.Spec{}, lvm.Errorf(lvm.KindInvalid, "claim %s has the access modes %q and %d bytes", c.Name, c.AccessModes, c.Size)
	}
	use := usage{raw: c.Block}
	if !c.Block {
		use.fsType = cmp.Or(c.Parameters[api.ParameterFSType], api.DefaultFSType)
		if err := s.checkFileSystem(use.fsType, ""); err != nil {
			return lvm.Spec{}, err
		}
	}
	spec := lvm.Spec{Name: api.PrefixVolume + c.UID, Claim: namespace + "/" + c.Name, Required: lvm.Bytes(c.Size)}
	spec, _, err := s.withClass(spec, use, c.Parameters)
	switch {
	case err != nil || !readOnly:
		return spec, err
	case spec.Class.Layout != lvm.LayoutThin:
		return lvm.Spec{}, lvm.Errorf(lvm.KindInvalid, "claim %s has the layout %s, and only thin volumes have copies", c.Name, spec.Class.Layout)
	case c.FromSnapshot != "":
		spec.Required = lvm.ReplaySize(spec.Required)
	}
	return spec, nil
}

// claimKey returns the names and the UID of the claim of a volume, as methods of Cluster take them. The names are empty if the request does
// not pass them.
func claimKey(claim, volume string) (namespace, name, uid string) {
	namespace, name, _ = strings.Cut(claim, "/")
	return namespace, name, strings.TrimPrefix(volume, api.PrefixVolume)
}

// needOf returns the start of a sentence about what the pods need.
func needOf(c api.PodClaims) string {
	if len(c.Pods) == 1 {
		return "pod " + c.Pods[0] + " needs"
	}
	return "pods " + strings.Join(c.Pods, " and ") + ", which share claims, need"
}

// unschedulable returns the start of a sentence about why the pods cannot run.
func unschedulable(c api.PodClaims) string {
	if len(c.Pods) == 1 {
		return "pod " + c.Pods[0] + " cannot be scheduled"
	}
	return "pods " + strings.Join(c.Pods, " and ") + ", which share claims, cannot all be scheduled"
}

// namesOf names the pod's claims, including the requested one.
func namesOf(spec lvm.Spec, claims api.PodClaims) string {
	_, claim, _ := claimKey(spec.Claim, spec.Name)
	names := []string{claim}
	for _, c := range claims.Claims {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " and ")
}

// FitTogether returns nil if this node can have the volumes of a claim and of the peers that wait with it, though csi-provisioner requests some of them for
// other claims. lvm.KindInsufficientCapacity: it has no capacity for all, and GetCapacity keeps the pod away for some time, as in the cases of
// createWithPeers; or the source of a peer is on another node. A claim with an invalid request does not count.
func (s *Server) FitTogether(ctx context.Context, namespace string, claim api.PodClaim, peers api.PodClaims) error {
	var specs []lvm.Spec
	for _, c := range append([]api.PodClaim{claim}, peers.Claims...) {
		if spec, err := s.specOfClaim(c, namespace); err == nil && !c.Bound {
			specs = append(specs, spec)
		}
	}
	of := lvm.Spec{Name: api.PrefixVolume + claim.UID, Claim: namespace + "/" + claim.Name}
	if len(specs) < 2 {
		return s.checkSources(ctx, of, peers)
	}
	err := s.volumes.Fits(ctx, specs)
	switch {
	case err == nil:
		return s.checkSources(ctx, of, peers)
	case lvm.KindOf(err) != lvm.KindInsufficientCapacity:
		return err
	}
	var unplaceable *lvm.UnplaceableError
	if errors.As(err, &unplaceable) {
		s.refusals.add(peers.PodUID, specs[0], specs[1:], unplaceable.Spec)
	}
	return lvm.Errorf(lvm.KindInsufficientCapacity, "node %s has insufficient capacity for claims %s together, which pod %s needs on one node", s.node, namesOf(of, peers), strings.Join(peers.Pods, " and pod "))
}
