package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/lvm/internal/zeroed"
)

// startPatience is how long Start waits for recovery, which then continues in the background. What cannot be recovered yet is
// retried after a pause that doubles from mendFirstPause up to readyLastPause.
const (
	startPatience  = 30 * time.Second
	mendFirstPause = time.Second
)

// Start recovers what an interruption left, and resumes wiping. First it waits for a driver that still runs on this node (the
// error is ctx's), and in each group for that driver's last command. What it cannot recover it logs and retries in the
// background: a group may be blocked, or a device open for a while. Start fails only if it cannot read the disks at all.
func (h *Host) Start(ctx context.Context) error {
	alone, err := lvmcmd.LockInstance(ctx, h.cfg.LockDir)
	if err != nil {
		return err
	}
	h.instance = alone
	if err := h.machine.Kernel.Load(ctx); err != nil {
		h.log.Warn("cannot load device-mapper; LVM tries to when it creates the first volume", "error", err)
	}
	h.disks.Check(ctx)
	h.zeroed.Begin(zeroed.Files{Dir: h.cfg.BackupDir, Log: h.log}, h.tasks.StartLater)
	s, err := h.readDisks(ctx)
	if err != nil {
		return err
	}
	if len(s.UnreadDevices) > 0 {
		h.log.Warn("cannot read some disks; their volume groups may be missing", "disks", s.UnreadDevices)
	}
	if len(s.Skipped) > 0 {
		h.log.Warn("some block devices are not scanned for volume groups", "devices", s.Skipped)
	}
	if _, damaged := h.volumes(s); damaged != nil {
		h.log.Warn("ignoring volumes with invalid tags", "error", damaged)
	}
	h.removeNamesOfFormerGroups(ctx, s)
	h.seen.begin()
	var mended sync.WaitGroup
	for _, g := range h.seen.newGroups(s) {
		mended.Add(1)
		h.tasks.Fork(func() { h.recoverWhenPossible(h.tasks.Context(), g, mended.Done) })
	}
	waiting, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if oplock.Await(waiting, &mended) != nil {
		h.log.Warn("recovery is slow; continuing in the background")
	}
	return nil
}

// seenGroups records the groups of the last read, so that each new one is recovered once. Before begin it reports no new
// groups.
type seenGroups struct {
	mu     sync.Mutex
	groups map[string]bool   // by UUID; nil before begin
	names  map[string]string // by UUID, for the log
}

// name returns the group's name as last read; "" if it never was.
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

// newGroups returns the groups that the last read did not have.
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

// recoverWhenPossible recovers one group as soon as that is possible; it calls tried after the first attempt. A group that
// disappears is new when it returns.
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
		h.log.Warn("cannot recover a volume group yet; the driver retries", "vg", g.Name, "pause", pause, "error", err)
		tried()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// recoverGroup recovers one group; the error joins those of the volumes that are still unfinished. It resumes suspended devices
// first: I/O to them waits.
func (h *Host) recoverGroup(ctx context.Context, g lvm.Group) (unfinished error) {
	if why := h.otherNodeReason(g); why != "" {
		h.log.Warn("ignoring a volume group", "vg", g.Name, "reason", why)
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

// afterFormerCommands waits until no command of an earlier driver works on the group, then reads and flushes it: that driver
// may have been killed between a commit and its flush, and a repeated request relies on the commit.
func (h *Host) afterFormerCommands(ctx context.Context, g lvm.Group) (lvm.Group, error) {
	unlock, err := h.locks.Acquire(ctx, g.UUID, "waiting for the commands of an earlier driver process")
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
		h.log.Warn("cannot flush the changes of an earlier driver process", "vg", g.Name, "error", err)
	}
	return g, nil
}

// recoverVolume completes a volume in the state creating or zeroing, or removes it if it is incomplete.
func (h *Host) recoverVolume(ctx context.Context, v lvm.Volume) error {
	s, unlock, err := h.locked(ctx, v.ID.VG, "recovering volume "+v.ID.LV, h.readDisks)
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
	case now.UUID != v.UUID || now.State != v.State || h.ready.has(v.ID.VG, v.UUID) || now.State == lvm.StateZeroing && h.operations.Has(v.ID.LV):
		return nil // a request works on it
	case alloc.Complete(g, lv, now):
		_, err := h.completeVolume(ctx, s, now)
		return err
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil { // the missing disk may have newer metadata of the volume
		return err
	}
	return h.remove(ctx, s, now.ID, now.UUID, now.State)
}

// removeUnfinished removes a snapshot that no request got.
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
		return nil // a request created it again
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil {
		return err
	}
	return h.remove(ctx, s, id, uuid, lvm.StateCreating)
}
