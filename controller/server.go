// Package controller implements the CSI Controller service of one node: it translates requests into values of package lvm,
// calls the node's LVM, and builds the replies.
//
// The lifecycle of a volume here: CreateVolume -> parseCreate (request -> lvm.Spec; refuses every invalid input) ->
// checkTopology (does the caller want this node?) -> createWithPeers (can this node hold the pod's other volumes too?) ->
// Volumes.CreateWithPeers -> volumeReply. parse.go, topology.go and reply.go are pure functions; the handlers only connect
// them.
//
// Errors leave this package with the kinds of package lvm; cmd/nodelvm has the one table that maps kinds to gRPC codes. The
// service knows only its own node: a handle of another node's volume is an error, and never counts as deleted.
package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/internal/csihealth"
	"github.com/nodelvm/nodelvm/lvm"
)

// Volumes is what this service needs of the node's LVM; *host.Host implements it. Every error has an lvm.Kind.
type Volumes interface {
	// CreateWithPeers creates the volume, or returns the one that an equal call created. A pod needs the volume together with
	// its peers: the node reserves their capacity for a while, or creates nothing. If one of them does not fit, the error is
	// lvm.KindInsufficientCapacity with an lvm.UnplaceableError.
	CreateWithPeers(ctx context.Context, spec lvm.Spec, peers []lvm.Spec) (lvm.Volume, error)
	// KeepReserved renews the reservations of those peers that are still wanted on this node.
	KeepReserved(wanted func(lvm.Volume) bool)
	// Presence returns what the node has under the name of a volume, whatever the parameters of the request. lvm.KindBusy: the
	// node cannot determine it.
	Presence(ctx context.Context, name string) (lvm.Presence, error)
	// Serves reports whether a class with this group, a name or an @tag, selects the volume group of the ID.
	Serves(ctx context.Context, group string, id lvm.ID) (bool, error)
	// Fits checks that the node can hold all of these volumes together now: nil, or lvm.KindInsufficientCapacity.
	Fits(ctx context.Context, specs []lvm.Spec) error
	// Reserve is Fits for a volume and its peers, and reserves the capacity of all of them for a while: the volume is created later, as a full copy.
	Reserve(ctx context.Context, spec lvm.Spec, peers []lvm.Spec) error
	// Delete deletes a volume. It returns nil if a readable group lacks it. lvm.KindNotLocal: the group itself is not on this
	// node.
	Delete(ctx context.Context, id lvm.ID) error
	// Lookup returns a ready volume, or lvm.KindNotFound, lvm.KindNotLocal or lvm.KindNotManaged.
	Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error)
	// List returns the ready volumes in ascending order of ID.String.
	List(ctx context.Context) ([]lvm.Volume, error)
	// Capacity returns the capacity of a class. A group that is not on this node has none; that is not an error.
	Capacity(ctx context.Context, class lvm.Class) (lvm.Capacity, error)
	// Extend expands a ready volume online to at least required and at most limit bytes (0: no limit). It never shrinks one: it
	// returns a volume that is large enough unchanged. lvm.KindOutOfRange: insufficient capacity, or over the limit.
	Extend(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error)
	// ExtendBlock is Extend for a volume that is, or may be, a raw block volume: the node first zeroes the added extents, and
	// returns lvm.KindBusy meanwhile.
	ExtendBlock(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error)
}

// Snapshots is what this service needs of the node's LVM for snapshots; *host.Host implements it.
type Snapshots interface {
	// CreateSnapshot creates a snapshot, or returns the one that an equal call created. lvm.KindInvalid: the volume has a
	// layout without snapshots.
	CreateSnapshot(ctx context.Context, spec lvm.SnapshotSpec) (lvm.Snapshot, error)
	// SnapshotPresence returns what the node has under the name of a snapshot, whatever the parameters of the request.
	// lvm.KindBusy: the node cannot determine it.
	SnapshotPresence(ctx context.Context, name string) (lvm.SnapshotPresence, error)
	// DeleteSnapshot deletes a snapshot, and no volume that was created from it. It returns nil if a readable group lacks it.
	DeleteSnapshot(ctx context.Context, id lvm.ID) error
	// LookupSnapshot returns a ready snapshot, or lvm.KindNotFound, lvm.KindNotLocal or lvm.KindNotManaged.
	LookupSnapshot(ctx context.Context, id lvm.ID) (lvm.Snapshot, error)
	// ListSnapshots returns the ready snapshots in ascending order of ID.String.
	ListSnapshots(ctx context.Context) ([]lvm.Snapshot, error)
}

// Config names the service's node and what the service uses.
type Config struct {
	NodeName  string
	Volumes   Volumes
	Snapshots Snapshots
	Cluster   Cluster // nil: no cluster; the service places each volume alone
	// CheckFileSystem refuses (lvm.KindInvalid) a type of file system that this node cannot create, and mkfs options that the
	// type does not allow.
	CheckFileSystem func(fsType, mkfsOptions string) error
	// CheckMountOptions refuses (lvm.KindInvalid) mount options that staging would refuse; nil: it refuses none.
	CheckMountOptions func(fsType string, options []string) error
	// MinimumSize returns the smallest size of a file system of the type; nil: no minimum.
	MinimumSize func(fsType string) lvm.Bytes
	// PrepareCopy makes LVM's copy of a volume complete and quick: it writes what LVM would miss to the disks, and lifts the limits of the
	// volume's I/O until end is called. It ignores a volume that is not in use here. nil: nothing is prepared.
	PrepareCopy func(ctx context.Context, source lvm.ID) (end func(), err error)
	// FullCopies copies snapshots of other nodes; nil: the driver refuses classes that ask for it.
	FullCopies FullCopies
	// Limits changes the limits of volumes' I/O; nil: volumes have none.
	Limits Limits
	// Conditions returns the conditions of this node's volumes and groups, and which volumes there are, for CSI's health calls; nil: the service
	// does not claim these.
	Conditions func(context.Context) (csihealth.Found, error)
}

// Server implements csi.ControllerServer for one node. Its memory of refused pods and answered requests may be lost at any
// time.
type Server struct {
	csi.UnimplementedControllerServer
	node            string
	volumes         Volumes
	snapshots       Snapshots
	cluster         Cluster
	refusals        *refusals
	outcomes        *outcomes // of requests for volumes
	checkFileSystem func(fsType, mkfsOptions string) error

	snapshotOutcomes *outcomes

	checkMountOptions func(fsType string, options []string) error
	minimumSize       func(fsType string) lvm.Bytes
	prepareCopy       func(ctx context.Context, source lvm.ID) (end func(), err error)
	limits            Limits
	fullCopies        FullCopies
	conditions        func(context.Context) (csihealth.Found, error)
}

func New(c Config) *Server {
	if c.CheckMountOptions == nil {
		c.CheckMountOptions = func(string, []string) error { return nil }
	}
	if c.MinimumSize == nil {
		c.MinimumSize = func(string) lvm.Bytes { return 0 }
	}
	if c.PrepareCopy == nil {
		c.PrepareCopy = func(context.Context, lvm.ID) (func(), error) { return func() {}, nil }
	}
	return &Server{
		node: c.NodeName, volumes: c.Volumes, snapshots: c.Snapshots, cluster: c.Cluster,
		refusals: newRefusals(time.Now), outcomes: newOutcomes(), snapshotOutcomes: newOutcomes(), checkFileSystem: c.CheckFileSystem,
		checkMountOptions: c.CheckMountOptions, minimumSize: c.MinimumSize, prepareCopy: c.PrepareCopy, limits: c.Limits, fullCopies: c.FullCopies,
		conditions: c.Conditions,
	}
}

// ControllerGetCapabilities returns the capabilities of this service (CSI spec, "ControllerGetCapabilities").
func (s *Server) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	reply := &csi.ControllerGetCapabilitiesResponse{}
	rpcs := []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	}
	if s.limits != nil {
		rpcs = append(rpcs, csi.ControllerServiceCapability_RPC_MODIFY_VOLUME)
	}
	if s.conditions != nil {
		rpcs = append(rpcs, csi.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH, csi.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH)
	}
	for _, rpc := range rpcs {
		reply.Capabilities = append(reply.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc}},
		})
	}
	return reply, nil
}

// here adds this node's name to an error of LVM, for the user who reads the event on a claim.
func (s *Server) here(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("node %s: %w", s.node, err)
}

// existing replaces "not on this node" with lvm.KindNotFound, which the spec requires of calls that use a volume or a snapshot.
// Only the calls that delete one must distinguish the two.
func existing(node string, err error) error {
	if kind := lvm.KindOf(err); kind == lvm.KindNotLocal || kind == lvm.KindNotManaged {
		return lvm.Errorf(lvm.KindNotFound, "node %s: %w", node, err)
	}
	return err
}

// Cluster is what this service needs of Kubernetes.
type Cluster interface {
	// Asked records the start of a request for a claim's volume, and answered its end.
	Asked(namespace, claim string) (answered func())
	// PodClaims returns the peers of a claim; without any, the zero value.
	PodClaims(ctx context.Context, namespace, claim string) (api.PodClaims, error)
	// Waiting reports whether a claim exists and has no volume. The service calls it often, so it answers from memory.
	Waiting(namespace, claim, uid string) bool
	// WaitingHere reports, from memory too, whether a claim waits for its volume and this node is its selected node.
	WaitingHere(namespace, claim, uid string) bool
	// MayCreate returns nil if the claim may have an empty volume. The service calls it often, so it answers from memory. lvm.KindInvalid: it may not.
	MayCreate(namespace, claim, uid string) error
	// MayRestore returns nil if the driver may restore this snapshot of the node for the claim. lvm.KindBusy: undecided, retry.
	// lvm.KindInvalid, lvm.KindNotFound: it may not.
	MayRestore(ctx context.Context, namespace, claim, uid string, of lvm.ID) error
	// SourceNode returns the node that has the source of a claim of a pod; "": there is no such node, because the source is another driver's, or may not be
	// copied. lvm.KindBusy: it is not known, or not yet; retry.
	SourceNode(ctx context.Context, namespace string, of api.PodClaim) (string, error)
	// MayDelete returns nil if the driver may delete this volume, snapshot or group snapshot of the node. lvm.KindBusy: undecided, retry.
	// lvm.KindConflict: a PersistentVolume or content needs it, other than the one that the caller deletes.
	MayDelete(ctx context.Context, of lvm.ID) error
	// NameThinClass adds the name of a thin class to the refusal of a snapshot or clone (lvm.ErrThick), and returns any other error as it is.
	NameThinClass(err error) error
	// Warn writes a warning event on the claim. It does not repeat one with the same reason while that event lasts.
	Warn(ctx context.Context, namespace, claim, uid, reason, message string)
}
