package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// Extend expands a ready volume online to at least required and at most limit bytes (0: no limit). It returns a volume that has
// that size already, without an LVM process, and never shrinks one. At most three LVM processes. KindOutOfRange: the group or
// pool lacks free extents, no whole number of extents meets the limit, or the request is negative; the driver has changed
// nothing. KindNotFound, KindNotLocal: as Lookup; KindBusy: retry, perhaps after a disk has returned.
func (h *Host) Extend(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error) {
	return h.extendInFlight(ctx, alloc.ExtendRequest{Id: id, Required: required, Limit: limit, Block: false})
}

func (h *Host) extendInFlight(ctx context.Context, r alloc.ExtendRequest) (lvm.Volume, error) {
	return oplock.Do(ctx, &h.operations, r.Id.LV, r, func(ctx context.Context) (lvm.Volume, error) {
		pause := extendPause
		for range createAttempts {
			v, zeroing, err := h.extend(ctx, r)
			switch {
			case errors.Is(err, engine.ErrChanged):
				select {
				case <-ctx.Done():
					return lvm.Volume{}, err
				case <-time.After(pause):
				}
				pause *= 2
				continue
			case err == nil && zeroing != "":
				err = h.awaitZeroes(r.Id, zeroing)
			}
			if err != nil || zeroing == "" {
				return v, err
			}
		}
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "cannot expand volume %s yet: another program changes or locks its volume group each time that the driver has extents for it; retry", r.Id)
	})
}

// extendPause is the first pause of an expansion that another program's command prevents; each further one doubles.
const extendPause = 100 * time.Millisecond

// extend expands the volume, unless the driver must zero some of the extents first: then it has changed nothing, and zeroing is
// the UUID of the volume that holds those extents.
func (h *Host) extend(ctx context.Context, r alloc.ExtendRequest) (v lvm.Volume, zeroing string, err error) {
	s, unlock, err := h.engine.Locked(ctx, r.Id.VG, "extending volume "+r.Id.LV, h.engine.ReadState)
	if err != nil {
		return lvm.Volume{}, "", err
	}
	defer unlock()
	g, lv, v, err := s.FindVolume(r.Id)
	if err == nil && v.State != lvm.StateReady {
		err = engine.NotReady(g, v)
	}
	if err == nil && v.Record != "" { // a copy of it may be under way
		err = lvm.Errorf(lvm.KindConflict, "volume %s/%s cannot be expanded now: its move to another node has begun. It is expanded there, or here if the move is cancelled", g.Name, lv.Name)
	}
	if err != nil {
		return lvm.Volume{}, "", err
	}
	x, err := alloc.PlanExtend(h.reserved.ApplyFor(s, v.Class.Layout), v, r)
	if err != nil {
		return lvm.Volume{}, "", err
	}
	// An interrupted command leaves the larger size in the metadata, and the device suspended with the old one.
	if err := h.engine.ResumeVolume(ctx, g, v); err != nil {
		return lvm.Volume{}, "", err
	}
	steps, err := lvmcmd.ExtendSteps(x)
	switch {
	case err != nil:
		return lvm.Volume{}, "", err
	case len(steps) == 0:
		return v, "", engine.CheckPresent(g, lv, "used") // a disk may have gone missing since an earlier request
	case len(x.Unzeroed) > 0:
		zeroing, err = h.zeroFirst(ctx, g, v, x.Unzeroed)
		return lvm.Volume{}, zeroing, err
	}
	if err := h.engine.CheckTransaction(g, lv.Pool); err != nil {
		return lvm.Volume{}, "", lvm.Errorf(lvm.KindOutOfRange, "cannot expand volume %s/%s: %w", g.Name, lv.Name, err)
	}
	done, err := h.engine.Commit(ctx, engine.Change{Group: g, Steps: steps, OnKnownZeroes: x.OnKnownZeroes})
	switch {
	case errors.Is(done.Failure, engine.ErrChanged):
		return lvm.Volume{}, "", engine.ErrChanged
	case err != nil:
		return lvm.Volume{}, "", err
	case done.Foreign >= useAndFree:
		h.log.Error("other programs changed a volume group while LVM expanded a raw block volume in it: if they used and freed its new extents, the volume shows what they wrote", "volume", v.ID.String(), "vg", g.Name, "commits", done.Foreign)
	}
	v, err = h.checkExtended(ctx, v, x.Volume.Size, done)
	return v, "", err
}

// useAndFree is the least number of commits with which another program can use extents and free them.
const useAndFree = 2

// checkExtended verifies what lvextend committed. LVM (2.03.16) exits with 0 even if a disk disappeared before the commit and only
// the other disks have it.
func (h *Host) checkExtended(ctx context.Context, v lvm.Volume, size lvm.Bytes, done engine.Committed) (lvm.Volume, error) {
	g, lv, now, err := h.engine.WithKnowledge(done.State).FindVolume(v.ID)
	switch {
	case err != nil:
		return lvm.Volume{}, err
	case now.UUID != v.UUID:
		return lvm.Volume{}, g.AbsentError("volume %s was created again while the driver extended it", v.ID)
	}
	if err := h.engine.ResumeVolume(ctx, g, now); err != nil {
		return lvm.Volume{}, err
	}
	if now.Size < size {
		return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "cannot extend volume %s/%s from %s to %s: %w", v.Group, v.ID.LV, v.Size, size, done.Cause())
	}
	if err := engine.CheckPresent(g, lv, "used"); err != nil {
		return lvm.Volume{}, err
	}
	done.Warn(h.engine.Log, v.ID.String())
	return now, h.engine.Flush(g)
}

// ExtendBlock is Extend for a raw block volume, whose user can read the added extents at once. So extents with unknown content
// are zeroed before: the driver creates a volume in the state deleting from them, and the wiper zeroes it. Meanwhile the answer
// is KindBusy. (Extend does the same if the volume's tags mark it as a raw block volume.)
func (h *Host) ExtendBlock(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error) {
	return h.extendInFlight(ctx, alloc.ExtendRequest{Id: id, Required: required, Limit: limit, Block: true})
}

// zeroPatience is how long one request waits for extents to be zeroed.
const zeroPatience = 20 * time.Second

// zeroFirst has the wiper zero the extents for a volume's expansion, and returns the UUID of the volume that holds them
// meanwhile. The caller holds the group's lock.
func (h *Host) zeroFirst(ctx context.Context, g lvm.Group, grown lvm.Volume, runs alloc.RunsByPV) (uuid string, err error) {
	id := lvm.ID{VG: g.UUID, LV: zeroName(grown.ID.LV)}
	if lv := g.FindLV(id.LV); lv != nil {
		return h.zeroes(g, *lv)
	}
	c := &alloc.Allocation{Group: g, Extents: runs.Extents(), Ranges: alloc.RangesOf(g, runs), Volume: lvm.Volume{
		ID: id, Name: id.LV, Claim: grown.Claim, Cluster: h.engine.Config.Cluster, Class: lvm.Class{Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero}, State: lvm.StateDeleting,
	}}
	if g.MDAFree < alloc.MetadataNeed(g, c.Volume.Class)+alloc.MdaReserve {
		return "", lvm.Errorf(lvm.KindOutOfRange, "cannot expand volume %s/%s: %w", g.Name, grown.ID.LV, alloc.MetadataAreaFull(g))
	}
	steps, err := lvmcmd.CreateSteps(c)
	if err != nil {
		return "", err
	}
	done, err := h.engine.Commit(ctx, engine.Change{Group: g, Steps: steps})
	if err != nil {
		return "", err
	}
	now, err := done.Group()
	if err != nil {
		return "", err
	}
	lv := now.FindLV(id.LV)
	if lv == nil {
		return "", lvm.Errorf(lvm.KindInternal, "cannot allocate %s of volume group %s, which may hold other users' data, for zeroing: %w", g.Bytes(c.Extents), g.Name, done.Cause())
	}
	h.log.Info("zeroing extents before a raw block volume is expanded onto them", "volume", grown.ID.String(), "bytes", int64(g.Bytes(c.Extents)))
	return h.zeroes(now, *lv)
}

// zeroes has the wiper zero the volume of zeroFirst.
func (h *Host) zeroes(g lvm.Group, lv lvm.LV) (uuid string, err error) {
	v, is := lv.AsVolume()
	if err := lv.CheckTags(); err != nil {
		return "", err
	}
	if !is || v.Cluster != h.engine.Config.Cluster || v.State != lvm.StateDeleting {
		return "", lvm.Errorf(lvm.KindBusy, "%s/%s has a name that the driver needs: rename or remove it", g.Name, lv.Name)
	}
	h.wiper.Wipe(v)
	return v.UUID, nil
}

// awaitZeroes waits until the wiper has freed what zeroFirst allocated.
func (h *Host) awaitZeroes(id lvm.ID, uuid string) error {
	select {
	case <-h.wiper.Done(uuid):
		if !h.tasks.IsStopped() {
			return nil
		}
	case <-time.After(zeroPatience):
	case <-h.tasks.Context().Done():
	}
	return lvm.Errorf(lvm.KindBusy, "volume %s cannot be expanded yet: its new extents may hold other users' data, and %s of them are not zeroed; retry", id, h.wiper.LeftOf(uuid))
}

// zeroName is the name of the volume that holds another volume's new extents: no volume or snapshot can have it.
func zeroName(volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return "z-" + hex.EncodeToString(sum[:16])
}
