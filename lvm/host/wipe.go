package host

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// wiper zeroes deleted volumes in the background, then frees their extents.
type wiper struct {
	turns oplock.Turns // one wipe at a time in each group

	mu      sync.Mutex
	pending map[string]*wiping // by the volume's UUID
}

// A failed wipe is retried after a pause that doubles from the first to the last of these.
const (
	wipeFirstPause = 100 * time.Millisecond
	wipeLastPause  = 5 * time.Minute
)

// A tag of the volume records the progress of its wipe: it belongs to this very volume and outlives the driver and its host's
// files. A commit is expensive, so the driver writes the tag once a minute and when it stops; a crash costs at most that much
// repeated zeroing.
const (
	keyWiped = "wiped" // bytes from the beginning that are zero and flushed
	wipeSave = time.Minute
)

// wipe starts the wipe of a volume in the state deleting, unless it is running.
func (h *Host) wipe(v lvm.Volume) {
	w := &h.wiper
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, under := w.pending[v.UUID]; under || h.tasks.IsStopped() {
		return
	}
	if w.pending == nil {
		w.pending = map[string]*wiping{}
	}
	w.pending[v.UUID] = &wiping{volume: v, left: v.Size, done: make(chan struct{})}
	h.tasks.Fork(func() { h.wipeUntilDone(v) })
}

func (h *Host) wipeUntilDone(v lvm.Volume) {
	w := &h.wiper
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		close(w.pending[v.UUID].done)
		delete(w.pending, v.UUID)
	}()
	for pause := wipeFirstPause; ; pause = min(2*pause, wipeLastPause) {
		err := h.wipeOnce(h.tasks.Context(), v)
		if err == nil || h.tasks.IsStopped() {
			return
		}
		h.log.Warn("cannot wipe or remove a deleted volume; the driver retries", "volume", v.ID.String(), "vg", v.Group, "vg_uuid", v.ID.VG, "pause", pause, "error", err)
		select {
		case <-h.tasks.Context().Done():
			return
		case <-time.After(pause):
		}
	}
}

// wipeOnce zeroes the volume from where an earlier attempt stopped, and removes it. It zeroes without the group's lock, because
// that can take hours.
func (h *Host) wipeOnce(ctx context.Context, v lvm.Volume) error {
	turn, err := h.wiper.turns.Wait(ctx, v.ID.VG, h.wiper.leftOf(v.UUID))
	if err != nil {
		return err
	}
	defer turn.End()
	var content *zeroedPrefix
	if isWiped(v) {
		content, err = h.zero(ctx, v, turn)
		if lvm.KindOf(err) == lvm.KindNotFound {
			return nil // an admin removed it
		}
		if err != nil {
			return err
		}
	}
	return h.removeIfStill(ctx, v, content)
}

// zeroedPrefix is what the wiper zeroed. It counts only if the volume still has this size and these extents.
type zeroedPrefix struct {
	size lvm.Bytes
	runs alloc.RunsByPV
}

// zero zeroes a deleted volume. Nil: another volume has the name by now.
func (h *Host) zero(ctx context.Context, v lvm.Volume, turn *oplock.Turn) (*zeroedPrefix, error) {
	s, err := h.readState(ctx)
	if err != nil {
		return nil, err
	}
	g, lv, now, err := s.FindVolume(v.ID)
	if err != nil {
		return nil, err
	}
	if now.UUID != v.UUID || now.State != lvm.StateDeleting {
		return nil, nil
	}
	return &zeroedPrefix{now.Size, alloc.ContentOf(g, lv)}, h.zeroVolume(ctx, g, lv, now, turn)
}

func (h *Host) zeroVolume(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume, turn *oplock.Turn) error {
	if lost := missingBelow(g, lv); len(lost) > 0 {
		return lvm.Errorf(lvm.KindInternal, "cannot wipe volume %s/%s: a part of it is on the physical volume %s, which is missing or unresponsive. Its data could be read when that disk returns: reconnect the disk (vgextend --restoremissing clears its MISSING flag), or remove the volume with lvremove",
			g.Name, lv.Name, strings.Join(lost, ", "))
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil { // neither removal nor a progress tag is possible
		return err
	}
	path, err := h.device(ctx, v)
	if err != nil {
		return err
	}
	if err := h.everyLeg(g, lv, path); err != nil {
		return err
	}
	saved := wipedUntil(lv)
	at, last := saved, time.Now()
	save := func(ctx context.Context) {
		if h.everyLeg(g, lv, path) == nil {
			h.saveWiped(ctx, v, saved, at)
			saved, last = at, time.Now()
		}
	}
	h.wiper.left(v, at)
	err = h.machine.Kernel.Zero(ctx, deviceAt(v, path), at, v.Size, func(until lvm.Bytes) {
		at = until
		h.wiper.left(v, at)
		turn.Pause(ctx, v.Size-at)
		if time.Since(last) > wipeSave && at < v.Size {
			save(ctx)
		}
	})
	if err != nil {
		if at > saved {
			save(context.WithoutCancel(ctx))
		}
		return err
	}
	return h.everyLeg(g, lv, path)
}

// removeIfStill removes a wiped volume if it is still the same one in the same state. content is nil for a volume that needed
// no zeroes.
func (h *Host) removeIfStill(ctx context.Context, v lvm.Volume, content *zeroedPrefix) error {
	s, unlock, err := h.locked(ctx, v.ID.VG, "removing volume "+v.ID.LV, h.readDisks)
	if err != nil {
		return err
	}
	defer unlock()
	g, lv, now, err := s.FindVolume(v.ID)
	if lvm.KindOf(err) == lvm.KindNotFound || err == nil && (now.UUID != v.UUID || now.State != v.State) {
		return nil
	}
	if err == nil {
		err = lvm.CheckNoNewMissingPV(g)
	}
	switch {
	case err != nil:
		return err
	case content != nil && now.Size != content.size:
		return lvm.Errorf(lvm.KindBusy, "another program changed its size from %s to %s while the driver wiped it", content.size, now.Size)
	case content != nil && maps.EqualFunc(content.runs, alloc.ContentOf(g, lv), slices.Equal):
		h.zeroed.Gains(g.UUID, content.runs)
	}
	return h.remove(ctx, s, now.ID, now.UUID, now.State)
}

// everyLeg makes sure that writes to a RAID volume reached all its legs: one that failed, or was missing at activation, still
// holds its old data, and would show it to the next volume there once its disk works again.
func (h *Host) everyLeg(g lvm.Group, lv lvm.LV, path string) error {
	if !strings.HasPrefix(lv.Type, "raid") {
		return nil
	}
	_, params, err := h.machine.Kernel.Status(path)
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot determine whether volume %s/%s is wiped on all its disks: %w", g.Name, lv.Name, err)
	}
	s, err := dm.ParseRAID(params)
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot determine whether volume %s/%s is wiped on all its disks: %w", g.Name, lv.Name, err)
	}
	if s.Damage().Legs > 0 {
		return lvm.Errorf(lvm.KindInternal, "cannot wipe volume %s/%s: one of its legs has failed or is not in use (%s), and still holds its data; reactivate the leg with lvchange --refresh, or replace it with lvconvert --repair, or remove the volume with lvremove", g.Name, lv.Name, s.Legs)
	}
	return nil
}

// wipedUntil reads the progress of an earlier wipe from its tag: 0 without a valid one.
func wipedUntil(lv lvm.LV) lvm.Bytes {
	values, err := lvm.DecodeTags(lv.Tags)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(values[keyWiped], 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return lvm.Bytes(n)
}

// saveWiped updates the progress tag. If that fails, a crash costs more zeroing, nothing else.
func (h *Host) saveWiped(ctx context.Context, v lvm.Volume, from, to lvm.Bytes) {
	s, unlock, err := h.locked(ctx, v.ID.VG, "saving how far volume "+v.ID.LV+" is wiped", h.readDisks)
	if err != nil {
		return
	}
	defer unlock()
	g, lv, now, err := s.FindVolume(v.ID)
	if err != nil || now.UUID != v.UUID || wipedUntil(lv) != from || lvm.CheckNoNewMissingPV(g) != nil {
		return
	}
	t, err := lvmcmd.TargetOf(g.Name, v.ID.LV)
	if err != nil {
		return
	}
	if err := h.run(ctx, g, []lvmcmd.Step{{Argv: wipedArgs(t, g, v.UUID, from, to)}}); err != nil {
		h.log.Info("cannot save the progress of a wipe", "volume", v.ID.String(), "error", err)
	}
}

func wipedArgs(t lvmcmd.Target, g lvm.Group, uuid string, from, to lvm.Bytes) []string {
	args := append(lvmcmd.OnDevices("lvchange", g), "-S", lvmcmd.Selection(g, uuid, lvm.StateDeleting))
	if from > 0 {
		args = append(args, "--deltag", wipedTag(from))
	}
	return append(args, "--addtag", wipedTag(to), "--", t.String())
}

func wipedTag(n lvm.Bytes) string { return lvm.EncodeTag(keyWiped, strconv.FormatInt(int64(n), 10)) }

// missingBelow lists the missing and unresponsive physical volumes below the LV. Zeroes would not reach them, and a disk that
// returns brings its old data back.
func missingBelow(g lvm.Group, lv lvm.LV) []string {
	var lost []string
	for _, segment := range lv.Segments {
		for _, area := range slices.Concat(segment.Areas, segment.Metadata) {
			if i := slices.IndexFunc(g.LVs, func(other lvm.LV) bool { return area.LV != "" && other.Name == area.LV }); i >= 0 {
				lost = append(lost, missingBelow(g, g.LVs[i])...)
			}
			if slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool { return (pv.Missing || pv.Unresponsive) && pv.UUID == area.PV }) {
				lost = append(lost, area.PV)
			}
		}
	}
	slices.Sort(lost)
	return slices.Compact(lost)
}
