package controller

import (
	"context"
	"errors"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// csi-provisioner forgets a volume after most errors of CreateVolume: it concludes that the driver created nothing (checkError
// in its pkg/controller). Only after Aborted, Canceled, DeadlineExceeded and Unavailable does it retry, even if a user deletes
// the claim meanwhile, until it gets a volume that it can delete. So whatever is wrong with a request, the driver returns
// lvm.KindBusy while an earlier request of the same name may have left a volume that its caller does not know of.

// outcomesMost limits the number of entries. A dropped entry has the effect of a restart.
const outcomesMost = 10_000

// outcomes remembers how requests for volumes, or those for snapshots, ended.
type outcomes struct {
	mu       sync.Mutex
	unknown  map[string]bool // by name: a request may have created it, and its caller got no reply
	answered map[string]bool // by the logical volume's UUID: the caller knows of it
}

func newOutcomes() *outcomes {
	return &outcomes{unknown: map[string]bool{}, answered: map[string]bool{}}
}

// noted runs a request. If the request panics, noted records its outcome as unknown.
func noted[R any](o *outcomes, name string, run func() (R, error)) (R, error) {
	returned := false
	defer func() {
		if !returned && checkName(name) == nil {
			o.lost(name)
		}
	}()
	reply, err := run()
	returned = true
	return reply, err
}

// made records that the caller got the volume or snapshot in a reply. A caller that has gone did not get it.
func (o *outcomes) made(ctx context.Context, name, uuid string) {
	if ctx.Err() != nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.unknown, name)
	note(o.answered, uuid)
}

// lost records a request that ended before its caller could know whether the volume or snapshot exists.
func (o *outcomes) lost(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	note(o.unknown, name)
}

// absent records that nothing has the name.
func (o *outcomes) absent(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.unknown, name)
}

func (o *outcomes) isUnknown(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unknown[name]
}

func (o *outcomes) isAnswered(uuid string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.answered[uuid]
}

// note adds a key; if there are too many, it drops an arbitrary one.
func note(set map[string]bool, key string) {
	for old := range set {
		if len(set) < outcomesMost {
			break
		}
		delete(set, old)
	}
	set[key] = true
}

// unlessMade returns the error of a CreateVolume call that failed with err: err itself, or, if a volume of that name may exist,
// an error after which the caller does not forget it.
func (s *Server) unlessMade(ctx context.Context, name string, err error) error {
	return s.outcomes.errorFor(name, err, func() found {
		p, unread := s.volumes.Presence(context.WithoutCancel(ctx), name)
		f := found{kept: s.kept(name, p, unread)}
		if p.Volume != nil {
			f.uuid, f.answered = p.Volume.UUID, exists(*p.Volume, err)
		}
		return f
	})
}

// found is what the node has under the name of a failed request.
type found struct {
	kept     error  // why a volume or snapshot may exist; nil: none does
	uuid     string // of the existing one; "": none, or unknown
	answered error  // the error for a caller that knows of it
}

// errorFor returns the error of a request that failed with err.
func (o *outcomes) errorFor(name string, err error, find func() found) error {
	if checkName(name) != nil {
		return err // nothing can have this name
	}
	if !isFinal(err) {
		o.lost(name)
		return err
	}
	f := find()
	switch {
	case f.kept == nil:
		o.absent(name)
		return err
	case f.uuid != "" && o.isAnswered(f.uuid):
		return f.answered
	}
	o.lost(name)
	return lvm.Errorf(lvm.KindBusy, "%w; the request is still not final: %w", err, f.kept)
}

// kept explains why a volume of the name may exist; nil: none does.
func (s *Server) kept(name string, p lvm.Presence, unread error) error {
	switch {
	case unread != nil:
		return unread
	case p.Volume != nil:
		return lvm.Errorf(lvm.KindBusy, "an earlier request created %s/%s on this node, and its caller may not know: restore the StorageClass of that request, or delete the claim and then that volume (kubectl nodelvm orphans)", p.Volume.Group, p.Volume.ID.LV)
	case p.UnderWay:
		return lvm.Errorf(lvm.KindBusy, "an earlier request for volume %q is still in flight: retry when it has ended", name)
	case p.Unsure != nil && s.outcomes.isUnknown(name):
		return lvm.Errorf(lvm.KindBusy, "an earlier request for volume %q may have created it, and not every disk can be read: %w", name, p.Unsure)
	}
	return nil
}

// exists returns the error for a volume that its caller knows of: no other node may create it a second time.
func exists(v lvm.Volume, err error) error {
	if lvm.KindOf(err) != lvm.KindInsufficientCapacity {
		return err
	}
	return lvm.Errorf(lvm.KindExists, "volume %q already exists as %s/%s, but %w", v.Name, v.Group, v.ID.LV, err)
}

// isFinal reports whether csi-provisioner concludes from an error that the driver created nothing. cmd/nodelvm maps the other
// errors to codes after which it retries.
func isFinal(err error) bool {
	gone := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	kind := lvm.KindOf(err)
	return kind != lvm.KindBusy && (kind != lvm.KindInternal || !gone)
}

// After most errors of CreateSnapshot, csi-snapshotter allows the deletion of a VolumeSnapshotContent without its snapshot: it
// concludes that the driver created nothing (isCSIFinalError in its pkg/sidecar-controller). So before such an error the driver
// searches for a snapshot that its caller may not know of, as it does for volumes.

// unlessTaken returns the error of a CreateSnapshot call that failed with err: err itself, or, if a snapshot of that name may
// exist, an error after which the caller does not forget it.
func (s *Server) unlessTaken(ctx context.Context, name string, err error) error {
	return s.snapshotOutcomes.errorFor(name, err, func() found {
		p, unread := s.snapshots.SnapshotPresence(context.WithoutCancel(ctx), name)
		f := found{kept: s.keptSnapshot(name, p, unread), answered: err}
		if p.Snapshot != nil {
			f.uuid = p.Snapshot.UUID
		}
		return f
	})
}

// keptSnapshot explains why a snapshot of the name may exist; nil: none does.
func (s *Server) keptSnapshot(name string, p lvm.SnapshotPresence, unread error) error {
	switch {
	case unread != nil:
		return unread
	case p.UnderWay:
		return lvm.Errorf(lvm.KindBusy, "an earlier request for snapshot %q is still in flight: retry when it has ended", name)
	case p.Snapshot != nil:
		return lvm.Errorf(lvm.KindBusy, "an earlier request created snapshot %s/%s on this node, and its caller may not know: restore the VolumeSnapshotClass of that request, or delete the VolumeSnapshot and then that snapshot (kubectl nodelvm orphans)", p.Snapshot.Group, p.Snapshot.ID.LV)
	case p.Unsure != nil && s.snapshotOutcomes.isUnknown(name):
		return lvm.Errorf(lvm.KindBusy, "an earlier request for snapshot %q may have created it, and not every disk can be read: %w", name, p.Unsure)
	}
	return nil
}
