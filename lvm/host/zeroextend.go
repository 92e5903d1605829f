package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

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
