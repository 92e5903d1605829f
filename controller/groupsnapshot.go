package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// GroupSnapshots is what the CSI GroupController service needs of the node's LVM; *host.Host implements it. Every error has an lvm.Kind.
type GroupSnapshots interface {
	// CreateGroupSnapshot takes snapshots of thin volumes at one moment, or finds those that an equal call took. prepare lifts a volume's I/O
	// limits until end is called, and writes its cached data to the disks.
	CreateGroupSnapshot(ctx context.Context, spec lvm.GroupSnapshotSpec, prepare func(context.Context, lvm.ID) (end func(), err error)) (lvm.GroupSnapshot, error)
	// DeleteGroupSnapshot deletes a group snapshot with its members. It returns nil if a readable group lacks it.
	DeleteGroupSnapshot(ctx context.Context, id lvm.ID) error
	// LookupGroupSnapshot returns a ready group snapshot, or lvm.KindNotFound, lvm.KindNotLocal or lvm.KindBusy.
	LookupGroupSnapshot(ctx context.Context, id lvm.ID) (lvm.GroupSnapshot, error)
}

// GroupServer implements csi.GroupControllerServer for one node.
type GroupServer struct {
	csi.UnimplementedGroupControllerServer
	node      string
	snapshots GroupSnapshots
	prepare   func(ctx context.Context, source lvm.ID) (end func(), err error)
	cluster   Cluster
}

// NewGroup returns the GroupController service of a node. prepare is that of GroupSnapshots.CreateGroupSnapshot; cluster as in Config.
func NewGroup(node string, snapshots GroupSnapshots, prepare func(ctx context.Context, source lvm.ID) (end func(), err error), cluster Cluster) *GroupServer {
	return &GroupServer{node: node, snapshots: snapshots, prepare: prepare, cluster: cluster}
}

// GroupControllerGetCapabilities returns the capabilities of this service (CSI spec, "GroupControllerGetCapabilities").
func (*GroupServer) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

// CreateVolumeGroupSnapshot takes snapshots of volumes of this node at one moment (CSI spec, "CreateVolumeGroupSnapshot"); they are ready to use
// when the call returns. lvm.KindInvalid: a volume's layout has no snapshots; lvm.KindExists: a group snapshot of other volumes has the name;
// lvm.KindNotFound: a volume is not on this node.
func (s *GroupServer) CreateVolumeGroupSnapshot(ctx context.Context, req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	spec, err := parseGroup(req)
	if err != nil {
		return nil, err
	}
	made, err := s.snapshots.CreateGroupSnapshot(ctx, spec, s.prepare)
	if err != nil {
		return nil, existing(s.node, err)
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: s.reply(made)}, nil
}

func parseGroup(req *csi.CreateVolumeGroupSnapshotRequest) (lvm.GroupSnapshotSpec, error) {
	if err := checkName(req.GetName()); err != nil {
		return lvm.GroupSnapshotSpec{}, err
	}
	spec := lvm.GroupSnapshotSpec{Name: req.GetName()}
	if n := len(req.GetSourceVolumeIds()); n == 0 || n > lvm.MaxGroupMembers {
		return spec, lvm.Errorf(lvm.KindInvalid, "the request has %d source_volume_ids; a group snapshot has 1 to %d volumes", n, lvm.MaxGroupMembers)
	}
	for _, handle := range req.GetSourceVolumeIds() {
		source, err := lvm.ParseID(handle)
		if err != nil || source.IsSnapshot() || source.IsGroupSnapshot() {
			return spec, lvm.Errorf(lvm.KindNotFound, "there is no volume %q to take a snapshot of; no volume of this driver has such a handle", handle)
		}
		spec.Sources = append(spec.Sources, source)
	}
	for _, key := range slices.Sorted(maps.Keys(req.GetParameters())) {
		if !strings.HasPrefix(key, api.ParameterPrefix) {
			return spec, lvm.Errorf(lvm.KindInvalid, "the VolumeGroupSnapshotClass has the parameter %q; group snapshots of this driver have none", key)
		}
	}
	return spec, nil
}

// DeleteVolumeGroupSnapshot deletes a group snapshot of this node with its snapshots (CSI spec, "DeleteVolumeGroupSnapshot"). As DeleteVolume, it
// returns OK for a handle that no group snapshot can have, and an error for one of another node's group, or one that a content of the cluster needs.
func (s *GroupServer) DeleteVolumeGroupSnapshot(ctx context.Context, req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	id, err := parseGroupID(req.GetGroupSnapshotId())
	switch {
	case req.GetGroupSnapshotId() == "":
		return nil, err
	case err != nil:
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil //nolint:nilerr // no group snapshot can have this handle
	}
	found, unknown := s.snapshots.LookupGroupSnapshot(ctx, id)
	if unknown == nil {
		if err := checkMembers(found, req.GetSnapshotIds()); err != nil {
			return nil, err
		}
	}
	err = mayDelete(ctx, s.cluster, id, func() error { return unknown })
	if err == nil {
		err = s.snapshots.DeleteGroupSnapshot(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", s.node, err)
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// GetVolumeGroupSnapshot describes one group snapshot (CSI spec, "GetVolumeGroupSnapshot").
func (s *GroupServer) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	id, err := parseGroupID(req.GetGroupSnapshotId())
	if err != nil {
		return nil, err
	}
	found, err := s.snapshots.LookupGroupSnapshot(ctx, id)
	if err != nil {
		return nil, existing(s.node, err)
	}
	if err := checkMembers(found, req.GetSnapshotIds()); err != nil {
		return nil, err
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: s.reply(found)}, nil
}

// parseGroupID parses a group snapshot's handle. lvm.KindInvalid: there is none; lvm.KindNotFound: no group snapshot can have it.
func parseGroupID(handle string) (lvm.ID, error) {
	if handle == "" {
		return lvm.ID{}, lvm.Errorf(lvm.KindInvalid, "the request has no group_snapshot_id")
	}
	id, err := lvm.ParseID(handle)
	if err != nil || !id.IsGroupSnapshot() {
		return lvm.ID{}, lvm.Errorf(lvm.KindNotFound, "there is no group snapshot %q; no group snapshot of this driver has such a handle", handle)
	}
	return id, nil
}

// checkMembers refuses (lvm.KindInvalid) snapshot handles that are not exactly those of the group snapshot. A request may have none.
func checkMembers(found lvm.GroupSnapshot, handles []string) error {
	if len(handles) == 0 {
		return nil
	}
	want := found.Handles()
	if got := slices.Sorted(slices.Values(handles)); !slices.Equal(got, want) {
		return lvm.Errorf(lvm.KindInvalid, "group snapshot %s does not have the snapshots of the request: it has %s", found.ID, strings.Join(want, ", "))
	}
	return nil
}

// reply describes a group snapshot to the caller.
func (s *GroupServer) reply(made lvm.GroupSnapshot) *csi.VolumeGroupSnapshot {
	reply := &csi.VolumeGroupSnapshot{GroupSnapshotId: made.ID.String(), CreationTime: timestamppb.New(made.Created), ReadyToUse: true}
	for _, sn := range made.Members {
		member := snapshotReply(sn, s.node)
		member.CreationTime = reply.GetCreationTime()
		reply.Snapshots = append(reply.Snapshots, member)
	}
	return reply
}
