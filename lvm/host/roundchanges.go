package host

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// The kernel shows a pool's mappings to other programs only in a metadata snapshot, of which a pool has one at most. It survives a power cut, and
// keeps freed blocks in use. So before the driver has the kernel create one, it tags the earlier of the two compared volumes, a round, as comparing;
// it tags that as ready again when the snapshot is released. Whoever finds a round that is comparing, and compares nothing at the moment, releases.

// Messages to a pool (Linux, Documentation/admin-guide/device-mapper/thin-provisioning.rst).
const (
	reserveMetadata = "reserve_metadata_snap"
	releaseMetadata = "release_metadata_snap"
)

func (h *Host) lockComparing(ctx context.Context) error {
	select {
	case h.comparing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return lvm.Errorf(lvm.KindBusy, "the driver compares other volumes; retry: %w", ctx.Err())
	}
}

func (h *Host) unlockComparing() { <-h.comparing }

// comparison is what Changes compares.
type comparison struct {
	group    lvm.Group
	base     lvm.Round
	one, two int // their numbers in the pool
	pool     lvm.LV
	size     lvm.Bytes
}

// Changes returns what differs between a round of a volume and a later one, or the volume itself while it is held: since and move identify them.
// KindNotFound: there is no such round; KindConflict: the volume is not held; KindBusy: another program has a metadata snapshot of the pool.
func (h *Host) Changes(ctx context.Context, id lvm.ID, uuid, since, move string) (*lvm.Changes, error) {
	if err := h.lockComparing(ctx); err != nil {
		return nil, err
	}
	defer h.unlockComparing()
	if err := h.mark(ctx, id, uuid, since, move); err != nil {
		return nil, err
	}
	c, err := h.comparison(ctx, id, uuid, since, move)
	if err != nil {
		return nil, err
	}
	changes, clean, err := h.compare(ctx, c)
	if !clean {
		failure := h.messagePool(c.group, c.pool, releaseMetadata)
		clean = failure == nil
		err = errors.Join(err, failure)
	}
	return changes, errors.Join(err, h.settleRound(context.WithoutCancel(ctx), c.base.ID, c.base.UUID, clean))
}

// mark tags the earlier round as comparing, and activates the pool.
func (h *Host) mark(ctx context.Context, id lvm.ID, uuid, since, move string) error {
	s, unlock, err := h.engine.Locked(ctx, id.VG, "comparing snapshots of volume "+id.LV, h.engine.ReadState)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := h.findCompared(s, id, uuid, since, move)
	if err != nil {
		return err
	}
	if c.base, err = h.settleLocked(ctx, c.group, c.base); err != nil {
		return err
	}
	if _, err := h.activateRoundLocked(ctx, c.group, c.base); err != nil {
		return err
	}
	_, err = h.tagRound(ctx, c.group, c.base, lvm.StateComparing)
	return err
}

func (h *Host) comparison(ctx context.Context, id lvm.ID, uuid, since, move string) (comparison, error) {
	s, err := h.engine.ReadDisks(ctx)
	if err != nil {
		return comparison{}, err
	}
	return h.findCompared(s, id, uuid, since, move)
}

// findCompared finds both volumes and their pool.
func (h *Host) findCompared(s lvm.State, id lvm.ID, uuid, since, move string) (c comparison, err error) {
	at, err := h.find(s, moveStep{id: id, uuid: uuid})
	if err != nil {
		return c, err
	}
	c.group = at.g
	base, there := roundOf(at.g, at.v, since)
	if !there {
		return c, at.g.AbsentError("volume %s/%s has no round %s", at.g.Name, id.LV, since)
	}
	c.base, c.one, c.two, c.size = base, at.g.FindLV(base.ID.LV).ThinID, at.lv.ThinID, at.g.Bytes(at.lv.Extents)
	if later, is := roundOf(at.g, at.v, move); is {
		c.two, c.size = at.g.FindLV(later.ID.LV).ThinID, later.Size
	} else if at.v.State != lvm.StateMoving || at.v.Move != move {
		return c, stepRefused(at.v, "compared for move "+move)
	}
	pool := at.g.FindLV(base.Pool)
	if pool == nil || pool.Thin == nil || c.one == 0 || c.two == 0 || c.one == c.two || at.lv.Pool != base.Pool {
		return c, lvm.Errorf(lvm.KindConflict, "volume %s/%s and its rounds are not in one thin pool", at.g.Name, id.LV)
	}
	c.pool = *pool
	return c, nil
}

// compare has the pool's metadata compared. The pool has a metadata snapshot of the driver afterwards, unless clean.
func (h *Host) compare(ctx context.Context, c comparison) (_ *lvm.Changes, clean bool, err error) {
	metadata := c.group.FindLV(c.pool.Thin.Metadata)
	if metadata == nil {
		return nil, true, lvm.Errorf(lvm.KindInternal, "the thin pool %s/%s has no metadata", c.group.Name, c.pool.Name)
	}
	device, active, err := h.engine.Machine.Kernel.Device(lvm.DeviceUUID(c.group.UUID, metadata.UUID) + "-tmeta")
	if err != nil || !active {
		return nil, true, lvm.Errorf(lvm.KindInternal, "the metadata of the thin pool %s/%s has no device: %w", c.group.Name, c.pool.Name, err)
	}
	switch err := h.messagePool(c.group, c.pool, reserveMetadata); {
	case errors.Is(err, unix.EBUSY):
		return nil, true, lvm.Errorf(lvm.KindBusy, "another program has a metadata snapshot of the thin pool %s/%s: end it, or release the snapshot (dmsetup message POOL-tpool 0 release_metadata_snap)", c.group.Name, c.pool.Name)
	case err != nil:
		return nil, true, lvm.Errorf(lvm.KindInternal, "the thin pool %s/%s creates no metadata snapshot: %w", c.group.Name, c.pool.Name, err)
	}
	changes, chunk := lvm.NewChanges(c.size), c.pool.Thin.ChunkSize
	found, err := h.engine.Machine.Delta.Compare(ctx, device, c.one, c.two, func(from, length int64) {
		changes.Add(lvm.Bytes(from)*chunk, lvm.Bytes(length)*chunk)
	})
	if err == nil && found != chunk {
		err = lvm.Errorf(lvm.KindInternal, "the thin pool %s/%s has chunks of %s, and thin_delta says %s", c.group.Name, c.pool.Name, chunk, found)
	}
	return changes, false, err
}

func (h *Host) messagePool(g lvm.Group, pool lvm.LV, text string) error {
	return h.engine.Machine.Kernel.MessagePool(lvm.DeviceUUID(g.UUID, pool.UUID)+"-tpool", text)
}

// settleRound ends a comparison of a round, if one is under way or was interrupted. clean: the pool has no metadata snapshot of the driver.
func (h *Host) settleRound(ctx context.Context, id lvm.ID, uuid string, clean bool) error {
	s, unlock, err := h.engine.Locked(ctx, id.VG, "ending the comparison of "+id.LV, h.engine.ReadDisks)
	if err != nil {
		return err
	}
	defer unlock()
	g, r, there, err := findRound(s, id, uuid)
	switch {
	case err != nil || !there:
	case clean:
		_, err = h.tagRound(ctx, g, r, lvm.StateReady)
	default:
		_, err = h.settleLocked(ctx, g, r)
	}
	return err
}

// settleLocked releases the metadata snapshot that a round records, and tags the round as ready. The snapshot is released before: only then the
// record may go.
func (h *Host) settleLocked(ctx context.Context, g lvm.Group, r lvm.Round) (lvm.Round, error) {
	if r.State != lvm.StateComparing {
		return r, nil
	}
	if _, err := h.activateRoundLocked(ctx, g, r); err != nil { // while no volume is active, neither is the pool: only an active one can release
		return r, err
	}
	pool := g.FindLV(r.Pool)
	if pool == nil {
		return r, g.AbsentError("volume group %s has no thin pool %s", g.Name, r.Pool)
	}
	status, err := h.engine.PoolStatus(g, *pool)
	if err != nil {
		return r, err
	}
	if status == nil || status.Failed {
		return r, lvm.Errorf(lvm.KindBusy, "the thin pool %s/%s is not active, or has failed: the driver cannot tell whether it has a metadata snapshot", g.Name, pool.Name)
	}
	if status.HeldMetadata {
		if err := h.messagePool(g, *pool, releaseMetadata); err != nil {
			return r, lvm.Errorf(lvm.KindInternal, "cannot release the metadata snapshot of the thin pool %s/%s: %w", g.Name, pool.Name, err)
		}
	}
	return h.tagRound(ctx, g, r, lvm.StateReady)
}
