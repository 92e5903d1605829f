package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// startPatience is how long Start waits for the mending of a group before it goes on without; it continues behind. What
// cannot be mended yet is tried again after a pause that doubles from mendFirstPause up to readyLastPause.
const (
	startPatience  = 30 * time.Second
	mendFirstPause = time.Second
)

// Start mends what an interruption left, and takes up the wiping. First it waits for a driver that still runs on this
// node to end (the error is ctx's), and, in each group apart, for its last command. What cannot be mended is logged, and tried
// again behind: a group may hang, or a device be open for a while. Only if the disks cannot be read at all does Start fail.
func (h *Host) Start(ctx context.Context) error {
	alone, err := lvmcmd.LockInstance(ctx, h.cfg.LockDir)
	if err != nil {
		return err
	}
	h.instance = alone
	if err := h.machine.Kernel.Load(ctx); err != nil {
		h.log.Warn("LVM will try to load device-mapper itself when the first volume is made", "error", err)
	}
	h.disks.Check(ctx)
	h.zeroed.begin(zeroedFiles{dir: h.cfg.BackupDir, log: h.log}, h.runLater)
	s, err := h.readDisks(ctx)
	if err != nil {
		return err
	}
	if len(s.UnreadDevices) > 0 {
		h.log.Warn("not every disk can be read; volume groups on them may be missing", "disks", s.UnreadDevices)
	}
	if len(s.Skipped) > 0 {
		h.log.Warn("not every block device is searched for volume groups", "devices", s.Skipped)
	}
	if _, damaged := h.volumes(s); damaged != nil {
		h.log.Warn("ignoring volumes with invalid tags", "error", damaged)
	}
	h.removeNamesOfFormerGroups(ctx, s)
	h.seen.begin()
	var mended sync.WaitGroup
	for _, g := range h.seen.newGroups(s) {
		mended.Add(1)
		h.background.Go(func() { h.recoverWhenPossible(h.closing, g, mended.Done) })
	}
	waiting, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if await(waiting, &mended) != nil {
		h.log.Warn("recovery is slow; continuing in the background")
	}
	return nil
}

// seenGroups remembers the groups that are there, so that each one that comes is looked through once. The zero value knows
// no group, and answers none, until begin.
type seenGroups struct {
	mu     sync.Mutex
	groups map[string]bool   // by UUID; nil before begin
	names  map[string]string // by UUID: what each group is called, for the log
}

// name is what a group is called, as far as it was ever read.
func (m *seenGroups) name(uuid string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names[uuid]
}

func (m *seenGroups) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups = map[string]bool{}
}

// newGroups are the groups that were not there the last time.
func (m *seenGroups) newGroups(s lvm.State) (list []lvm.Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.names == nil {
		m.names = map[string]string{}
	}
	for _, g := range s.Groups {
		m.names[g.UUID] = g.Name
	}
	if m.groups == nil {
		return nil
	}
	now := make(map[string]bool, len(s.Groups))
	for _, g := range s.Groups {
		now[g.UUID] = true
		if !m.groups[g.UUID] {
			list = append(list, g)
		}
	}
	m.groups = now
	return list
}

// recoverWhenPossible brings one group into order as soon as that can be done; tried is called when it was tried once. A group
// that goes away meanwhile is a newcomer when it comes back.
func (h *Host) recoverWhenPossible(ctx context.Context, g lvm.Group, tried func()) {
	tried = sync.OnceFunc(tried)
	defer tried()
	for pause := mendFirstPause; ; pause = min(2*pause, readyLastPause) {
		now, err := h.afterFormerCommands(ctx, g)
		if lvm.KindOf(err) == lvm.KindNotLocal {
			return
		}
		if err == nil {
			err = h.recoverGroup(ctx, now)
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		h.log.Warn("what an earlier run left in a volume group is still there; it is tried again", "vg", g.Name, "pause", pause, "error", err)
		tried()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// recoverGroup brings one group into order; the error joins those of the volumes that are still unfinished. Suspended devices come
// first: whatever touches them hangs.
func (h *Host) recoverGroup(ctx context.Context, g lvm.Group) (unfinished error) {
	if why := h.otherNodeReason(g); why != "" {
		h.log.Warn("a volume group is left alone", "vg", g.Name, "reason", why)
		return nil
	}
	h.clearInactiveTables(ctx, g)
	h.resume(ctx, g)
	h.removeStaleNames(ctx, g.Name, h.isUsed(g))
	for _, lv := range g.LVs {
		if sn, ours, err := lvm.SnapshotOf(g, lv); err == nil && ours && sn.Cluster == h.cfg.Cluster && sn.State == lvm.StateCreating {
			unfinished = errors.Join(unfinished, h.removeUnfinished(ctx, sn.ID, sn.UUID))
		}
		v, ours, err := lvm.VolumeOf(g, lv)
		if err != nil || !ours || v.Cluster != h.cfg.Cluster {
			continue
		}
		switch v.State {
		case lvm.StateCreating, lvm.StateZeroing:
			unfinished = errors.Join(unfinished, h.recoverVolume(ctx, v))
		case lvm.StateDeleting:
			h.wipe(v)
		case lvm.StateReady:
		}
	}
	h.flushPools(ctx, g)
	return unfinished
}

// afterFormerCommands waits until no command of an earlier driver works on the group, and reads it then. What that driver
// had committed, and was killed before it could flush, is flushed: whoever asks for it once more finds it done.
func (h *Host) afterFormerCommands(ctx context.Context, g lvm.Group) (lvm.Group, error) {
	unlock, err := h.lockGroup(ctx, g.UUID, "waiting for the commands of the driver before this one")
	if err != nil {
		return lvm.Group{}, err
	}
	defer unlock()
	if err := h.commands.Take(ctx, g.Name); err != nil {
		return lvm.Group{}, err
	}
	s, err := h.readDisks(ctx)
	if err != nil {
		return lvm.Group{}, err
	}
	if g, err = s.FindGroup(g.UUID); err != nil {
		return lvm.Group{}, err
	}
	if err := lvm.CheckResponsive(g); err != nil {
		return lvm.Group{}, err
	}
	if err := h.flush(g); err != nil {
		h.log.Warn("what an earlier run changed could not be flushed", "vg", g.Name, "error", err)
	}
	return g, nil
}

// recoverVolume finishes a volume that was left as creating, or removes it if it never was complete.
func (h *Host) recoverVolume(ctx context.Context, v lvm.Volume) error {
	s, unlock, err := h.locked(ctx, v.ID.VG, "finishing volume "+v.ID.LV, h.readDisks)
	if err != nil {
		return err
	}
	defer unlock()
	g, lv, now, err := s.FindVolume(v.ID)
	switch {
	case lvm.KindOf(err) == lvm.KindNotFound:
		return nil
	case err != nil:
		return err
	case now.UUID != v.UUID || now.State != v.State || h.ready.has(v.ID.VG, v.UUID) || now.State == lvm.StateZeroing && h.operations.has(v.ID.LV):
		return nil // a request has taken it up meanwhile
	case alloc.Complete(g, lv, now):
		_, err := h.completeVolume(ctx, s, now)
		return err
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil { // the disk that is away may also know better what has become of the volume
		return err
	}
	return h.remove(ctx, s, now.ID, now.UUID, now.State)
}

// removeUnfinished removes a snapshot that never was answered, if it still is that.
func (h *Host) removeUnfinished(ctx context.Context, id lvm.ID, uuid string) error {
	s, unlock, err := h.locked(ctx, id.VG, "removing the unfinished snapshot "+id.LV, h.readDisks)
	if err != nil {
		return err
	}
	defer unlock()
	g, now, err := s.FindSnapshot(id)
	switch {
	case lvm.KindOf(err) == lvm.KindNotFound:
		return nil
	case err != nil:
		return err
	case now.UUID != uuid || now.State != lvm.StateCreating:
		return nil // made again by a request
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil {
		return err
	}
	return h.remove(ctx, s, id, uuid, lvm.StateCreating)
}
