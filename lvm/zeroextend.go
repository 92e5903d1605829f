package lvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// ExtendBlock is Extend for a raw block volume: its user sees what it grows by at once. So extents whose content is not known
// are zeroed before they become a part of it: they are made a volume of their own that is deleted already, and the wiper does
// the rest. As long as that lasts the answer is KindBusy. (Extend does the same where the volume's tags say that it is one.)
func (h *Host) ExtendBlock(ctx context.Context, id ID, required, limit Bytes) (Volume, error) {
	return h.extendFlight(ctx, extending{id, required, limit, true})
}

// zeroPatience is how long one request waits for extents to be zeroed.
const zeroPatience = 20 * time.Second

// zeroFirst has the wiper zero extents that a volume is to grow by, and answers the UUID of the volume that holds them
// meanwhile. The group's lock must be held.
func (h *Host) zeroFirst(ctx context.Context, g Group, grown Volume, runs runsByPV) (uuid string, err error) {
	id := ID{VG: g.UUID, LV: zeroName(grown.ID.LV)}
	if lv := g.named(id.LV); lv != nil {
		return h.zeroes(g, *lv)
	}
	c := &carving{group: g, extents: runs.extents(), ranges: rangesOf(g, runs), volume: Volume{
		ID: id, Name: id.LV, Claim: grown.Claim, Cluster: h.cfg.Cluster, Class: Class{Layout: LayoutLinear, Wipe: WipeZero}, State: StateDeleting,
	}}
	if g.MDAFree < mdaNeed(g, c.volume.Class)+mdaReserve {
		return "", Errorf(KindOutOfRange, "volume %s/%s cannot grow: %w", g.Name, grown.ID.LV, areaFull(g))
	}
	steps, err := createSteps(c)
	if err != nil {
		return "", err
	}
	failure := h.run(ctx, g, steps)
	s, err := h.readRaw(ctx)
	if err != nil {
		return "", err
	}
	now, err := s.group(g.UUID)
	if err != nil {
		return "", err
	}
	lv := now.named(id.LV)
	if lv == nil {
		return "", Errorf(KindInternal, "%s of volume group %s, which may hold data of others, could not be taken for zeroing: %w", g.bytes(c.extents), g.Name, orNothing(failure))
	}
	h.log.Info("extents are zeroed before a raw block volume grows onto them", "volume", grown.ID.String(), "bytes", int64(g.bytes(c.extents)))
	return h.zeroes(now, *lv)
}

// zeroes has the wiper zero what zeroFirst took.
func (h *Host) zeroes(g Group, lv LV) (uuid string, err error) {
	v, ours, err := volumeOf(g, lv)
	if err != nil {
		return "", err
	}
	if !ours || v.Cluster != h.cfg.Cluster || v.State != StateDeleting {
		return "", Errorf(KindBusy, "%s/%s is in the way of what this driver makes under that name: rename or remove it", g.Name, lv.Name)
	}
	h.wipe(v)
	return v.UUID, nil
}

// awaitZeroes waits until the wiper has given back what zeroFirst took.
func (h *Host) awaitZeroes(id ID, uuid string) error {
	select {
	case <-h.wiper.end(uuid):
		if h.closing.Err() == nil {
			return nil
		}
	case <-time.After(zeroPatience):
	case <-h.closing.Done():
	}
	return Errorf(KindBusy, "volume %s is to grow onto extents that may hold data of others: %s of them are still to be zeroed; ask again", id, h.wiper.leftOf(uuid))
}

// zeroName is the name of the volume that holds extents which another one is to grow by: never that of a volume or a snapshot.
func zeroName(volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return "z-" + hex.EncodeToString(sum[:16])
}
