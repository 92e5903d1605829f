package lvm

import (
	"context"
	"slices"
	"sync"
	"time"
)

// startPatience is how long Start waits for the mending of a group before it goes on without; it continues behind.
const startPatience = 30 * time.Second

// Start mends what an interruption left, and takes up the wiping. First it waits for a driver that still runs on this
// node to end (the error is ctx's), and, in each group apart, for its last command. What cannot be mended is logged and
// stays for the next start; a group that hangs is mended when it does not any more. Only if the disks cannot be read at
// all does Start fail.
func (h *Host) Start(ctx context.Context) error {
	alone, err := lockInstance(ctx, h.cfg.LockDir)
	if err != nil {
		return err
	}
	h.alone = alone
	if err := h.machine.Kernel.Load(ctx); err != nil {
		h.log.Warn("LVM will try to load device-mapper itself when the first volume is made", "error", err)
	}
	h.disks.check(ctx)
	s, err := h.readRaw(ctx)
	if err != nil {
		return err
	}
	if len(s.Unread) > 0 {
		h.log.Warn("not every disk can be read; volume groups on them may be missing", "disks", s.Unread)
	}
	if _, damaged := h.volumes(s); damaged != nil {
		h.log.Warn("volumes are left alone", "error", damaged)
	}
	var mended sync.WaitGroup
	for _, g := range s.Groups {
		mended.Add(1)
		h.background.Go(func() {
			defer mended.Done()
			h.mend(h.closing, g)
		})
	}
	waiting, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if await(waiting, &mended) != nil {
		h.log.Warn("mending what an earlier run left takes long; it goes on behind")
	}
	return nil
}

// mend brings one group into order. Suspended devices come first: whatever touches them hangs.
func (h *Host) mend(ctx context.Context, g Group) {
	s, err := h.afterFormerCommands(ctx, g)
	if err == nil {
		g, err = s.group(g.UUID)
	}
	if err != nil {
		h.log.Warn("a volume group could not be looked through for what an earlier run left", "vg", g.Name, "error", err)
		return
	}
	h.resume(ctx, g)
	failed := func(id ID, err error) {
		if err != nil && ctx.Err() == nil {
			h.log.Warn("what an earlier run left unfinished is still there", "volume", id.String(), "error", err)
		}
	}
	for _, lv := range g.LVs {
		if sn, ours, err := snapshotOf(g, lv); err == nil && ours && sn.Cluster == h.cfg.Cluster && sn.State == StateCreating {
			failed(sn.ID, h.removeUnfinished(ctx, sn.ID, sn.UUID))
		}
		v, ours, err := volumeOf(g, lv)
		if err != nil || !ours || v.Cluster != h.cfg.Cluster {
			continue
		}
		switch v.State {
		case StateCreating:
			failed(v.ID, h.mendVolume(ctx, v))
		case StateDeleting:
			h.wipe(v)
		case StateReady:
		}
	}
}

// afterFormerCommands waits until no command of an earlier driver works on the group, and reads the disks then.
func (h *Host) afterFormerCommands(ctx context.Context, g Group) (State, error) {
	unlock, err := h.lockGroup(ctx, g.UUID, "waiting for the commands of the driver before this one")
	if err != nil {
		return State{}, err
	}
	defer unlock()
	if err := h.commands.take(ctx, g.Name); err != nil {
		return State{}, err
	}
	return h.readRaw(ctx)
}

// mendVolume finishes a volume that was left as creating, or removes it if it never was complete.
func (h *Host) mendVolume(ctx context.Context, v Volume) error {
	unlock, err := h.lockGroup(ctx, v.ID.VG, "finishing volume "+v.ID.LV)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := h.readRaw(ctx)
	if err != nil {
		return err
	}
	_, lv, now, err := s.find(v.ID)
	switch {
	case KindOf(err) == KindNotFound:
		return nil
	case err != nil:
		return err
	case now.UUID != v.UUID || now.State != StateCreating || h.settler.has(v.ID.VG, v.UUID):
		return nil // a request has taken it up meanwhile
	case complete(lv, now):
		_, err := h.finish(ctx, s, now)
		return err
	default:
		return h.remove(ctx, s, now.ID, now.UUID, StateCreating)
	}
}

// removeUnfinished removes a snapshot that never was answered, if it still is that.
func (h *Host) removeUnfinished(ctx context.Context, id ID, uuid string) error {
	unlock, err := h.lockGroup(ctx, id.VG, "removing the unfinished snapshot "+id.LV)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := h.readRaw(ctx)
	if err != nil {
		return err
	}
	_, now, err := s.findSnapshot(id)
	if err != nil || now.UUID != uuid || now.State != StateCreating {
		return nil // gone, or made anew by a request
	}
	return h.remove(ctx, s, id, uuid, StateCreating)
}

// removeIfStill removes a wiped volume, if what is there now is the very one, in the same state.
func (h *Host) removeIfStill(ctx context.Context, v Volume) error {
	unlock, err := h.lockGroup(ctx, v.ID.VG, "removing volume "+v.ID.LV)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := h.readRaw(ctx)
	if err != nil {
		return err
	}
	_, _, now, err := s.find(v.ID)
	if KindOf(err) == KindNotFound || err == nil && (now.UUID != v.UUID || now.State != v.State) {
		return nil
	}
	if err != nil {
		return err
	}
	return h.remove(ctx, s, now.ID, now.UUID, now.State)
}

// resume refreshes what is suspended of our volumes in a group, their legs and pools included: whoever touches such
// a device hangs. An LVM command that was killed between suspending and resuming leaves it so.
func (h *Host) resume(ctx context.Context, g Group) {
	if len(h.suspendedIn(g)) == 0 {
		return
	}
	unlock, err := h.lockGroup(ctx, g.UUID, "resuming suspended volumes")
	if err != nil {
		h.log.Error("suspended volumes could not be resumed", "vg", g.Name, "error", err)
		return
	}
	defer unlock()
	for _, lv := range h.used(g) {
		if !h.partSuspended(g, lv) {
			continue
		}
		if err := h.refresh(ctx, g, lv); err != nil {
			h.log.Error("a suspended volume could not be resumed: what uses it hangs", "vg", g.Name, "lv", lv.Name, "error", err)
		} else {
			h.log.Warn("a suspended volume was resumed", "vg", g.Name, "lv", lv.Name)
		}
	}
}

func (h *Host) refresh(ctx context.Context, g Group, lv LV) error {
	t, err := targetOf(g.Name, lv.Name)
	if err != nil {
		return err
	}
	return h.run(ctx, g, []step{{refreshArgs(t, g)}})
}

// used lists what this cluster uses in a group: first thin pools, an admin's too, since the refresh of a thin volume
// hangs while its pool is suspended; then volumes and snapshots.
func (h *Host) used(g Group) []LV {
	var pools, volumes []LV
	for _, lv := range g.LVs {
		if values, _ := decodeTags(lv.Tags); lv.Hidden || values[keyVersion] == "" || values[keyCluster] != h.cfg.Cluster {
			continue
		}
		volumes = append(volumes, lv)
		for _, pool := range g.LVs {
			if pool.Name == lv.Pool && !slices.ContainsFunc(pools, func(p LV) bool { return p.Name == pool.Name }) {
				pools = append(pools, pool)
			}
		}
	}
	return append(pools, volumes...)
}

// partSuspended tells whether an LV's device, or that of a part of it, is suspended: legs, a pool's data and metadata;
// not the pool of a thin volume.
func (h *Host) partSuspended(g Group, lv LV) bool {
	suspended := h.suspendedIn(g)
	return len(suspended) > 0 && slices.ContainsFunc(parts(g, lv), func(part LV) bool { return suspended[dmUUID(g.UUID, part.UUID)] })
}

// below lists an LV, its pool, and all that they are made of: a suspended device down there stops it as well.
func below(g Group, lv LV) []LV {
	all := parts(g, lv)
	for _, pool := range g.LVs {
		if pool.Name == lv.Pool {
			all = append(all, parts(g, pool)...)
		}
	}
	return all
}

// parts lists an LV and the LVs that it is made of.
func parts(g Group, lv LV) []LV {
	all := []LV{lv}
	add := func(name string) {
		if i := slices.IndexFunc(g.LVs, func(other LV) bool { return name != "" && other.Name == name }); i >= 0 {
			all = append(all, parts(g, g.LVs[i])...)
		}
	}
	for _, segment := range lv.Segments {
		for _, area := range slices.Concat(segment.Areas, segment.Metadata) {
			add(area.LV)
		}
	}
	if lv.Thin != nil {
		add(lv.Thin.Data)
		add(lv.Thin.Metadata)
	}
	return all
}

// suspendedIn finds the suspended devices of a group, hidden layers included, by the device-mapper UUID of their LV.
func (h *Host) suspendedIn(g Group) map[string]bool {
	devices, err := h.devices()
	if err != nil {
		h.log.Warn("whether a device is suspended cannot be told", "error", err)
		return nil
	}
	return h.suspendedOf(g, devices)
}

func (h *Host) suspendedOf(g Group, devices []Device) map[string]bool {
	group := dmUUID(g.UUID, "")
	var suspended map[string]bool
	for _, d := range devices {
		size := len(group) + 32
		if len(d.UUID) < size || d.UUID[:len(group)] != group || !h.suspended(d.Path) {
			continue
		}
		if suspended == nil {
			suspended = map[string]bool{}
		}
		suspended[d.UUID[:size]] = true // without the suffix of a hidden layer
	}
	return suspended
}
