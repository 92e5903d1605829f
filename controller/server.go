// Package controller is the CSI Controller service of one node: it turns requests into plain lvm values, asks the
// node's LVM, and builds the replies.
//
// The lifecycle of a volume here: CreateVolume -> parseCreate (request -> lvm.Spec, every bad input refused) ->
// checkTopology (is this the node that the caller wants?) -> createWithPeers (are the pod's other volumes possible here too?) ->
// Volumes.CreateWithPeers -> volumeReply. parse.go, topology.go and reply.go are pure functions; the handlers only connect
// them.
//
// Errors leave this package as the lvm package's kinds; cmd/nodelvm holds the one table that turns them into gRPC
// codes. The service knows its own node only: a handle of another node's volume is an error, never "already gone".
package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// Volumes is what this service needs of the node's LVM; *lvm.Host is one. Every error carries an lvm.Kind.
type Volumes interface {
	// CreateWithPeers makes the volume, or finds the one that an equal call made before. The peers are of use only
	// together with it: their room is kept for a while, or nothing is made. That one has no room is lvm.KindInsufficientCapacity with an
	// lvm.Misfit.
	CreateWithPeers(ctx context.Context, spec lvm.Spec, peers []lvm.Spec) (lvm.Volume, error)
	// KeepReserved keeps that room for longer for those of the peers that are still wanted here.
	KeepReserved(wanted func(lvm.Volume) bool)
	// Presence tells what the node knows of the volume that requests of this name made, whatever they asked for.
	// lvm.KindBusy: it cannot tell.
	Presence(ctx context.Context, name string) (lvm.Presence, error)
	// Serves tells whether a class with this group, a name or an @tag, stands for the volume group of the ID.
	Serves(ctx context.Context, group string, id lvm.ID) (bool, error)
	// Room tells whether all of these can be had now, beside each other: nil, or lvm.KindInsufficientCapacity.
	Fits(ctx context.Context, specs []lvm.Spec) error
	// Delete removes a volume. One that its readable group lacks is gone already: nil. lvm.KindNotLocal says that the
	// group itself is not on this node.
	Delete(ctx context.Context, id lvm.ID) error
	// Lookup finds a ready volume, or says lvm.KindNotFound, lvm.KindNotLocal or lvm.KindNotManaged.
	Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error)
	// List returns the ready volumes in ascending order of ID.String.
	List(ctx context.Context) ([]lvm.Volume, error)
	// Capacity answers what a class can still get. A group that is not there has none; that is no error.
	Capacity(ctx context.Context, class lvm.Class) (lvm.Capacity, error)
	// Extend makes a ready volume at least required and at most limit bytes large (0: no limit), while it is in use. It
	// never shrinks: a volume that is large enough is returned as it is. lvm.KindOutOfRange: no room, or over the limit.
	Extend(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error)
	// ExtendBlock is Extend for what is, or may be, a raw block volume: what it grows by is zeroed before, and lvm.KindBusy is
	// the answer as long as that lasts.
	ExtendBlock(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error)
}

// Snapshots is what this service needs of the node's LVM for snapshots; *lvm.Host is one.
type Snapshots interface {
	// CreateSnapshot takes a snapshot, or finds the one that an equal call took. lvm.KindInvalid: the volume has a layout
	// without snapshots.
	CreateSnapshot(ctx context.Context, spec lvm.SnapshotSpec) (lvm.Snapshot, error)
	// SnapshotPresence tells what the node knows of the snapshot that requests of this name took, whatever they asked for.
	// lvm.KindBusy: it cannot tell.
	SnapshotPresence(ctx context.Context, name string) (lvm.SnapshotPresence, error)
	// DeleteSnapshot removes a snapshot; volumes made from it stay. One that its readable group lacks is gone: nil.
	DeleteSnapshot(ctx context.Context, id lvm.ID) error
	// LookupSnapshot finds a ready snapshot, or says lvm.KindNotFound, lvm.KindNotLocal or lvm.KindNotManaged.
	LookupSnapshot(ctx context.Context, id lvm.ID) (lvm.Snapshot, error)
	// ListSnapshots returns the ready snapshots in ascending order of ID.String.
	ListSnapshots(ctx context.Context) ([]lvm.Snapshot, error)
}

// Config says whom the service serves, and through what.
type Config struct {
	NodeName  string
	Volumes   Volumes
	Snapshots Snapshots
	Cluster   Cluster // nil: there is no cluster to ask, and each volume is placed alone
	// CheckFileSystem refuses (lvm.KindInvalid) a type of file system that this node does not make, and mkfs options that
	// the type does not allow.
	CheckFileSystem func(fsType, mkfsOptions string) error
	// CheckMountOptions refuses (lvm.KindInvalid) mount options that staging would refuse; nil: it refuses none.
	CheckMountOptions func(fsType string, options []string) error
	// MinimumSize is what a file system of the type needs; nil: nothing.
	MinimumSize func(fsType string) lvm.Bytes
	// Sync writes to the disks what the file system of a volume holds in memory, before the volume is copied; it ignores a volume that
	// is not mounted here. nil: LVM alone freezes the file system.
	Sync func(ctx context.Context, source lvm.ID) error
}

// Server implements csi.ControllerServer for one node. What it remembers, who was refused and who was answered, may be
// lost at any time.
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
	sync              func(ctx context.Context, source lvm.ID) error
}

// New makes the service.
func New(c Config) *Server {
	if c.CheckMountOptions == nil {
		c.CheckMountOptions = func(string, []string) error { return nil }
	}
	if c.MinimumSize == nil {
		c.MinimumSize = func(string) lvm.Bytes { return 0 }
	}
	if c.Sync == nil {
		c.Sync = func(context.Context, lvm.ID) error { return nil }
	}
	return &Server{
		node: c.NodeName, volumes: c.Volumes, snapshots: c.Snapshots, cluster: c.Cluster,
		refusals: newRefusals(time.Now), outcomes: newOutcomes(), snapshotOutcomes: newOutcomes(), checkFileSystem: c.CheckFileSystem,
		checkMountOptions: c.CheckMountOptions, minimumSize: c.MinimumSize, sync: c.Sync,
	}
}

// ControllerGetCapabilities tells what this service can do (CSI spec, "ControllerGetCapabilities").
func (s *Server) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	reply := &csi.ControllerGetCapabilitiesResponse{}
	for _, rpc := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		reply.Capabilities = append(reply.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc}},
		})
	}
	return reply, nil
}

// here adds this node's name to what LVM says, for the person who reads the event on a claim.
func (s *Server) here(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("node %s: %w", s.node, err)
}

// existing turns "not on this node" into lvm.KindNotFound, as the spec wants it of calls that use a volume or a
// snapshot; only the calls that delete one must tell the two apart.
func (s *Server) existing(err error) error {
	if kind := lvm.KindOf(err); kind == lvm.KindNotLocal || kind == lvm.KindNotManaged {
		return lvm.Errorf(lvm.KindNotFound, "node %s: %w", s.node, err)
	}
	return err
}
