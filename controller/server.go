// Package controller is the CSI Controller service of one node: it turns requests into plain lvm values, asks the
// node's LVM, and builds the replies.
//
// One volume's way through it: CreateVolume -> parseCreate (request -> lvm.Spec, every bad input refused) ->
// checkTopology (is this the node that the caller wants?) -> Volumes.Create -> volumeReply. parse.go, topology.go and
// reply.go are pure functions; the handlers only connect them.
//
// Errors leave this package as the lvm package's kinds; cmd/nodelvm holds the one table that turns them into gRPC
// codes. The service knows its own node only: a handle of another node's volume is an error, never "already gone".
package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// TopologyKey is the one topology segment of this driver; its value is the node's name (CSI spec, "Topology").
const TopologyKey = "topology.nodelvm.io/node"

// Keys of a volume's context, which Kubernetes keeps in the PV's volume attributes.
const (
	AttributeUUID  = "nodelvm.io/lv-uuid" // the logical volume's own UUID: checked before its device is used
	AttributeGroup = "nodelvm.io/group"   // the volume group's name, for people
)

// Volumes is what this service needs of the node's LVM; *lvm.Host is one. Every error carries an lvm.Kind.
type Volumes interface {
	// Create makes the volume, or finds the one that an equal call made before.
	Create(ctx context.Context, spec lvm.Spec) (lvm.Volume, error)
	// Delete removes a volume. One that its readable group lacks is gone already: nil. lvm.KindNotOurs says that the
	// group itself is not on this node.
	Delete(ctx context.Context, id lvm.ID) error
	// Lookup finds a ready volume, or says lvm.KindNotFound or lvm.KindNotOurs.
	Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error)
	// List returns the ready volumes in ascending order of ID.String.
	List(ctx context.Context) ([]lvm.Volume, error)
	// Capacity answers what a class can still get. A group that is not there has none; that is no error.
	Capacity(ctx context.Context, class lvm.Class) (lvm.Capacity, error)
}

// Server implements csi.ControllerServer for one node. It holds no state of its own.
type Server struct {
	csi.UnimplementedControllerServer
	volumes Volumes
	node    string
}

// New makes the service of the named node.
func New(volumes Volumes, node string) *Server {
	return &Server{volumes: volumes, node: node}
}

// ControllerGetCapabilities tells what this service can do (CSI spec, "ControllerGetCapabilities").
func (s *Server) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	reply := &csi.ControllerGetCapabilitiesResponse{}
	for _, rpc := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		reply.Capabilities = append(reply.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: rpc}},
		})
	}
	return reply, nil
}
