package controller

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// CreateSnapshot creates a snapshot of a volume of this node (CSI spec, "CreateSnapshot"); it is ready to use when the call
// returns. lvm.KindInvalid: the volume's layout has no snapshots. lvm.KindExists: a snapshot of another volume has the name.
// While an earlier call may have created a snapshot that the caller does not know of, every error is lvm.KindBusy
// (outcome.go).
func (s *Server) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	return noted(s.snapshotOutcomes, req.GetName(), func() (*csi.CreateSnapshotResponse, error) {
		snapshot, err := s.createSnapshot(ctx, req)
		if err != nil {
			return nil, s.unlessTaken(ctx, req.GetName(), err)
		}
		s.snapshotOutcomes.made(ctx, snapshot.Name, snapshot.UUID)
		return &csi.CreateSnapshotResponse{Snapshot: snapshotReply(snapshot, s.node)}, nil
	})
}

func (s *Server) createSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (lvm.Snapshot, error) {
	spec, err := parseCreateSnapshot(req)
	if err != nil {
		return lvm.Snapshot{}, err
	}
	if err := checkSnapshotTopology(req.GetAccessibilityRequirements(), s.node); err != nil {
		return lvm.Snapshot{}, err
	}
	end, err := s.prepareThin(ctx, spec.Source, lvm.SnapshotName(spec.Name))
	if err != nil {
		return lvm.Snapshot{}, err
	}
	defer end()
	snapshot, err := s.snapshots.CreateSnapshot(ctx, spec)
	return snapshot, s.nameThinClass(existing(s.node, err))
}

// prepareThin is Config.PrepareCopy for a thin volume, unless a logical volume with the name of its copy exists. LVM makes no other copy, and so
// the limits stay.
func (s *Server) prepareThin(ctx context.Context, source lvm.ID, copied string) (end func(), err error) {
	v, err := s.volumes.Lookup(ctx, source)
	if err != nil || v.Class.Layout != lvm.LayoutThin || s.holds(ctx, lvm.ID{VG: source.VG, LV: copied}) {
		return func() {}, nil //nolint:nilerr // a copy that is refused gets a better reason
	}
	return s.prepareCopy(ctx, source)
}

// nameThinClass is Cluster.NameThinClass, without a cluster too.
func (s *Server) nameThinClass(err error) error {
	if s.cluster == nil || err == nil {
		return err
	}
	return s.cluster.NameThinClass(err)
}

func parseCreateSnapshot(req *csi.CreateSnapshotRequest) (lvm.SnapshotSpec, error) {
	if err := checkName(req.GetName()); err != nil {
		return lvm.SnapshotSpec{}, err
	}
	if req.GetSourceVolumeId() == "" {
		return lvm.SnapshotSpec{}, lvm.Errorf(lvm.KindInvalid, "the request has no source_volume_id")
	}
	source, err := lvm.ParseID(req.GetSourceVolumeId())
	if err != nil || source.IsSnapshot() {
		return lvm.SnapshotSpec{}, lvm.Errorf(lvm.KindNotFound, "there is no volume %q to take a snapshot of; no volume of this driver has such a handle", req.GetSourceVolumeId())
	}
	for _, key := range slices.Sorted(maps.Keys(req.GetParameters())) {
		if !strings.HasPrefix(key, api.ParameterPrefix) {
			return lvm.SnapshotSpec{}, lvm.Errorf(lvm.KindInvalid, "the VolumeSnapshotClass has the parameter %q; snapshots of this driver have none", key)
		}
	}
	return lvm.SnapshotSpec{Name: req.GetName(), Source: source}, nil
}

// DeleteSnapshot deletes a snapshot of this node (CSI spec, "DeleteSnapshot"), and no volume that was created from it. As
// DeleteVolume, it returns OK for a handle that no snapshot can have, and an error for one of another node's group.
func (s *Server) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, errMissingSnapshot
	}
	id, err := parseSnapshot(req.GetSnapshotId())
	if err != nil {
		return &csi.DeleteSnapshotResponse{}, nil //nolint:nilerr // no snapshot can have this handle
	}
	lookup := func() error { _, err := s.snapshots.LookupSnapshot(ctx, id); return err }
	if err := mayDelete(ctx, s.cluster, id, lookup); err != nil {
		return nil, s.here(err)
	}
	if err := s.snapshots.DeleteSnapshot(ctx, id); err != nil {
		return nil, s.here(err)
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// GetSnapshot describes one snapshot (CSI spec, "GetSnapshot").
func (s *Server) GetSnapshot(ctx context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, errMissingSnapshot
	}
	id, err := parseSnapshot(req.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	snapshot, err := s.snapshots.LookupSnapshot(ctx, id)
	if err != nil {
		return nil, existing(s.node, err)
	}
	return &csi.GetSnapshotResponse{Snapshot: snapshotReply(snapshot, s.node)}, nil
}

// ListSnapshots lists this node's snapshots: all, those of one volume, or one by its handle (CSI spec, "ListSnapshots"). For a
// snapshot or volume that does not exist, the list is empty. Pages are those of ListVolumes.
func (s *Server) ListSnapshots(ctx context.Context, req *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	if err := checkPage(req.GetMaxEntries(), req.GetStartingToken()); err != nil {
		return nil, err
	}
	snapshots, err := s.snapshots.ListSnapshots(ctx)
	if err != nil {
		return nil, err
	}
	snapshots = slices.DeleteFunc(snapshots, func(snapshot lvm.Snapshot) bool {
		return req.GetSnapshotId() != "" && req.GetSnapshotId() != snapshot.ID.String() ||
			req.GetSourceVolumeId() != "" && req.GetSourceVolumeId() != snapshot.Source.String()
	})
	page, next := pageOf(snapshots, func(sn lvm.Snapshot) lvm.ID { return sn.ID }, req.GetStartingToken(), int(req.GetMaxEntries()))
	reply := &csi.ListSnapshotsResponse{NextToken: next}
	for _, snapshot := range page {
		reply.Entries = append(reply.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: snapshotReply(snapshot, s.node)})
	}
	return reply, nil
}

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
