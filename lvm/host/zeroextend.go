package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// ExtendBlock is Extend for a raw block volume: its user sees what it grows by at once. So extents whose content is not known
// are zeroed before they become a part of it: they are made a volume of their own that is deleted already, and the wiper does
// the rest. As long as that lasts the answer is KindBusy. (Extend does the same where the volume's tags say that it is one.)
func (h *Host) ExtendBlock(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error) {
	return h.extendFlight(ctx, alloc.ExtendRequest{Id: id, Required: required, Limit: limit, Block: true})
}

// zeroPatience is how long one request waits for extents to be zeroed.
const zeroPatience = 20 * time.Second

// zeroFirst has the wiper zero extents that a volume is to grow by, and answers the UUID of the volume that holds them
// meanwhile. The group's lock must be held.
func (h *Host) zeroFirst(ctx context.Context, g lvm.Group, grown lvm.Volume, runs alloc.RunsByPV) (uuid string, err error) {
	id := lvm.ID{VG: g.UUID, LV: zeroName(grown.ID.LV)}
	if lv := g.FindLV(id.LV); lv != nil {
		return h.zeroes(g, *lv)
	}
	c := &alloc.Allocation{Group: g, Extents: runs.Extents(), Ranges: alloc.RangesOf(g, runs), Volume: lvm.Volume{
		ID: id, Name: id.LV, Claim: grown.Claim, Cluster: h.cfg.Cluster, Class: lvm.Class{Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero}, State: lvm.StateDeleting,
	}}
	if g.MDAFree < alloc.MetadataNeed(g, c.Volume.Class)+alloc.MdaReserve {
		return "", lvm.Errorf(lvm.KindOutOfRange, "cannot expand volume %s/%s: %w", g.Name, grown.ID.LV, alloc.MetadataAreaFull(g))
	}
	steps, err := lvmcmd.CreateSteps(c)
	if err != nil {
		return "", err
	}
	failure := h.run(ctx, g, steps)
	s, err := h.readDisks(ctx)
	if err != nil {
		return "", err
	}
	now, err := s.FindGroup(g.UUID)
	if err != nil {
		return "", err
	}
	lv := now.FindLV(id.LV)
	if lv == nil {
		return "", lvm.Errorf(lvm.KindInternal, "%s of volume group %s, which may hold data of others, could not be taken for zeroing: %w", g.Bytes(c.Extents), g.Name, orNoEffect(failure))
	}
	h.log.Info("extents are zeroed before a raw block volume grows onto them", "volume", grown.ID.String(), "bytes", int64(g.Bytes(c.Extents)))
	return h.zeroes(now, *lv)
}

// zeroes has the wiper zero what zeroFirst took.
func (h *Host) zeroes(g lvm.Group, lv lvm.LV) (uuid string, err error) {
	v, ours, err := lvm.VolumeOf(g, lv)
	if err != nil {
		return "", err
	}
	if !ours || v.Cluster != h.cfg.Cluster || v.State != lvm.StateDeleting {
		return "", lvm.Errorf(lvm.KindBusy, "%s/%s has a name that this driver needs: rename or remove it", g.Name, lv.Name)
	}
	h.wipe(v)
	return v.UUID, nil
}

// awaitZeroes waits until the wiper has given back what zeroFirst took.
func (h *Host) awaitZeroes(id lvm.ID, uuid string) error {
	select {
	case <-h.wiper.end(uuid):
		if h.closing.Err() == nil {
			return nil
		}
	case <-time.After(zeroPatience):
	case <-h.closing.Done():
	}
	return lvm.Errorf(lvm.KindBusy, "volume %s is to be expanded onto extents that may hold data of others: %s are still to be zeroed; retry", id, h.wiper.leftOf(uuid))
}

// zeroName is the name of the volume that holds extents which another one is to grow by: never that of a volume or a snapshot.
func zeroName(volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return "z-" + hex.EncodeToString(sum[:16])
}
