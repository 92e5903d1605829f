package wipe

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// Wiper zeroes deleted volumes in the background, then frees their extents.
type Wiper struct {
	engine         *engine.Engine
	tasks          *oplock.Tasks
	queue          oplock.ZeroQueue // one wipe at a time in each group
	newVolumeQueue oplock.ZeroQueue // the same for extents of new volumes, for which requests wait

	mu      sync.Mutex
	pending map[string]*wiping // by the volume's UUID
}

func New(e *engine.Engine, tasks *oplock.Tasks) *Wiper { return &Wiper{engine: e, tasks: tasks} }

// A failed wipe is retried after a pause that doubles from the first to the last of these.
const (
	wipeFirstPause = 100 * time.Millisecond
	wipeLastPause  = 5 * time.Minute
)

// Wipe starts the wipe of a volume in the state deleting, unless it is running.
func (w *Wiper) Wipe(v lvm.Volume) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, under := w.pending[v.UUID]; under || w.tasks.IsStopped() {
		return
	}
	if w.pending == nil {
		w.pending = map[string]*wiping{}
	}
	w.pending[v.UUID] = &wiping{volume: v, left: toWrite(v), done: make(chan struct{})}
	w.tasks.Fork(func(ctx context.Context) { w.wipeUntilDone(ctx, v) })
}

func (w *Wiper) wipeUntilDone(ctx context.Context, v lvm.Volume) {
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		close(w.pending[v.UUID].done)
		delete(w.pending, v.UUID)
	}()
	for pause := wipeFirstPause; ; pause = min(2*pause, wipeLastPause) {
		err := w.wipeOnce(ctx, v)
		if err == nil || ctx.Err() != nil {
			return
		}
		w.engine.Log.Warn("cannot wipe or remove a deleted volume; the driver retries", "volume", v.ID.String(), "vg", v.Group, "vg_uuid", v.ID.VG, "pause", pause, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// wipeOnce zeroes or erases the volume from where an earlier attempt stopped, and removes it. It zeroes without the group's lock, because
// that can take hours.
func (w *Wiper) wipeOnce(ctx context.Context, v lvm.Volume) error {
	turn, err := w.queue.Wait(ctx, v.ID.VG, w.LeftOf(v.UUID))
	if err != nil {
		return err
	}
	defer turn.End()
	var content *zeroedPrefix
	if IsWiped(v) || v.Class.Encryption != lvm.EncryptionNone {
		content, err = w.clear(ctx, v, turn)
		if lvm.KindOf(err) == lvm.KindNotFound {
			return nil // an admin removed it
		}
		if err != nil {
			return err
		}
	}
	return w.removeIfStill(ctx, v, content)
}

// zeroedPrefix is what the wiper zeroed. It counts only if the volume still has this size and these extents.
type zeroedPrefix struct {
	size lvm.Bytes
	runs alloc.RunsByPV
}

// zero zeroes a deleted volume.
func (w *Wiper) zero(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume, turn *oplock.ZeroSlot) (*zeroedPrefix, error) {
	return &zeroedPrefix{v.Size, alloc.ContentOf(g, lv)}, w.zeroVolume(ctx, g, lv, v, turn)
}

// writable returns the device of a deleted volume, provided that writes to it reach all its disks.
func (w *Wiper) writable(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume) (path string, err error) {
	if lost := missingBelow(g, lv); len(lost) > 0 {
		return "", lvm.Errorf(lvm.KindInternal, "cannot wipe volume %s/%s: a part of it is on the physical volume %s, which is missing or unresponsive. Its data could be read when that disk returns: reconnect the disk (vgextend --restoremissing clears its MISSING flag), or remove the volume with lvremove",
			g.Name, lv.Name, strings.Join(lost, ", "))
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil { // neither removal nor a progress tag is possible
		return "", err
	}
	if err := engine.CheckNoDependents(g, lv, "wiped"); err != nil { // zeroes would fill an admin's snapshot
		return "", err
	}
	if path, err = w.engine.EnsureActive(ctx, g, lv, v); err != nil {
		return "", err
	}
	// A pod to which it was published at the moment of the deletion could write behind the zeroes.
	if err := w.engine.Machine.Kernel.CheckUnused(ctx, path); err != nil {
		return "", lvm.Errorf(lvm.KindOf(err), "cannot wipe volume %s/%s: %w", g.Name, lv.Name, err)
	}
	return path, w.everyLeg(g, lv, path)
}

func (w *Wiper) zeroVolume(ctx context.Context, g lvm.Group, lv lvm.LV, v lvm.Volume, turn *oplock.ZeroSlot) error {
	path, err := w.writable(ctx, g, lv, v)
	if err != nil {
		return err
	}
	size := v.DeviceSize()
	saved := v.Wiped
	at, last := saved, time.Now()
	var missed error // once set, only the next attempt writes again what a leg has missed
	reached := func() bool {
		if missed == nil {
			missed = w.everyLeg(g, lv, path)
		}
		return missed == nil
	}
	save := func(ctx context.Context) {
		if reached() {
			w.saveWiped(ctx, v, saved, at)
			saved, last = at, time.Now()
		}
	}
	w.left(v, at)
	zeroing, stop := context.WithCancel(ctx)
	defer stop()
	err = w.engine.Machine.Kernel.Zero(zeroing, engine.DeviceAt(v, path), at, size, func(until lvm.Bytes) {
		at = until
		if !reached() {
			stop()
			return
		}
		w.left(v, at)
		turn.Pause(ctx, size-at)
		if time.Since(last) > wipeSave && at < size {
			save(ctx)
		}
	})
	if err != nil && at > saved {
		save(context.WithoutCancel(ctx))
	}
	if !reached() {
		return missed
	}
	return err
}

// removeIfStill removes a wiped volume if it is still the same one in the same state. content is nil for a volume that needed
// no zeroes.
func (w *Wiper) removeIfStill(ctx context.Context, v lvm.Volume, content *zeroedPrefix) error {
	s, unlock, err := w.engine.Locked(ctx, v.ID.VG, "removing volume "+v.ID.LV, w.engine.ReadDisks)
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
		w.engine.Zeroed.Gains(g.UUID, content.runs)
	}
	return w.engine.Remove(ctx, s, now.ID, now.UUID, now.State)
}

// everyLeg makes sure that writes to a RAID volume reach all its legs: one that failed, or was missing at activation, still
// holds its old data, and would show it to the next volume there once its disk works again. KindBusy: the kernel rebuilds a leg,
// and has not copied yet what the leg missed.
func (w *Wiper) everyLeg(g lvm.Group, lv lvm.LV, path string) error {
	s, is, err := w.raidStatus(g, lv, path)
	switch {
	case err != nil || !is:
		return err
	case s.Damage().Legs > 0:
		return failedLeg(g, lv, s)
	case s.Lags():
		return lvm.Errorf(lvm.KindBusy, "cannot wipe volume %s/%s yet: the kernel rebuilds one of its legs (%s, %s, %d of %d sectors), which may hold old data until then; the driver retries. If the rebuild stands still, restart it with lvchange --refresh; if the leg fails again, replace it with lvconvert --repair, or remove the volume with lvremove", g.Name, lv.Name, s.Legs, s.Action, s.Done, s.Total)
	}
	return nil
}

// noFailedLeg is everyLeg for a volume that stays: the kernel reads a leg only where it has rebuilt it.
func (w *Wiper) noFailedLeg(g lvm.Group, lv lvm.LV, path string) error {
	s, is, err := w.raidStatus(g, lv, path)
	if err == nil && is && s.Damage().Legs > 0 {
		err = failedLeg(g, lv, s)
	}
	return err
}

// raidStatus returns the kernel's status of a RAID volume; is is false for another volume.
func (w *Wiper) raidStatus(g lvm.Group, lv lvm.LV, path string) (s dm.RaidStatus, is bool, err error) {
	if !strings.HasPrefix(lv.Type, "raid") {
		return s, false, nil
	}
	_, params, err := w.engine.Machine.Kernel.Status(path)
	if err == nil {
		s, err = dm.ParseRAID(params)
	}
	if err != nil {
		err = lvm.Errorf(lvm.KindInternal, "cannot determine whether volume %s/%s is wiped on all its disks: %w", g.Name, lv.Name, err)
	}
	return s, true, err
}

func failedLeg(g lvm.Group, lv lvm.LV, s dm.RaidStatus) error {
	return lvm.Errorf(lvm.KindInternal, "cannot wipe volume %s/%s: one of its legs has failed or is not in use (%s), and still holds its data; reactivate the leg with lvchange --refresh, or replace it with lvconvert --repair, or remove the volume with lvremove", g.Name, lv.Name, s.Legs)
}

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

// IsWiped reports whether the driver zeroes the volume before its extents return to the group. Not a thin one: the zeroes would
// allocate its blocks, and the pool zeroes each block before it hands it out.
func IsWiped(v lvm.Volume) bool {
	return v.Class.Wipe != lvm.WipeNone && v.Class.Layout != lvm.LayoutThin
}
