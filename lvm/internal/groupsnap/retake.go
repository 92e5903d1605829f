package groupsnap

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// retake makes the reserved snapshots those of one moment. What it does rests on a reading under LVM's lock: until it has that, an admin's
// command may change what s shows.
func (m *Maker) retake(ctx context.Context, s lvm.State, reserved []lvm.Snapshot, idle map[lvm.ID]bool) error {
	work := stall{kernel: m.Engine.Machine.Kernel, limit: m.Limit}
	if work.limit == 0 {
		work.limit = Limit
	}
	var names []lvm.VGName // the group of each snapshot
	for _, sn := range reserved {
		g, _, v, err := s.FindVolume(sn.Source)
		if err == nil {
			err = m.Freezable(ctx, g, v) // it may run an lvm command, which takes that lock
		}
		if err != nil {
			return err
		}
		names = append(names, g.Name)
	}
	unlock, err := m.lockCommands(ctx, slices.Clone(names))
	if err != nil {
		return err
	}
	defer unlock()
	if s, err = m.Engine.ReadDisks(ctx); err != nil {
		return err
	}
	for i, sn := range reserved {
		if err := m.prepare(ctx, s, &work, sn, idle[sn.Source]); err != nil {
			return err
		}
		if g, err := s.FindGroup(sn.ID.VG); err != nil || g.Name != names[i] {
			return errors.Join(err, lvm.Errorf(lvm.KindBusy, "volume group %s was renamed meanwhile; retry", names[i]))
		}
	}
	stalled, err := work.run(m.resumeLater)
	if len(work.origins) > 0 {
		m.Engine.Log.Info("suspended volumes for a group snapshot", "volumes", len(work.origins), "stall", stalled, "error", err)
		if observe := m.Engine.Config.ObserveStall; observe != nil {
			observe(stalled)
		}
	}
	if err == nil {
		err = m.checkPools(work.retakes)
	}
	return err
}

// checkPools returns an error (KindBusy) if a pool may not have committed the snapshots: the kernel accepts a message, then drops what it did if
// it cannot write the pool's metadata. The number is that of the reserved snapshot again, and the pool takes no writes.
func (m *Maker) checkPools(taken []retake) error {
	checked := map[string]bool{}
	for _, r := range taken {
		if checked[r.pool] {
			continue
		}
		checked[r.pool] = true
		path, active, err := m.Engine.Machine.Kernel.Device(r.pool)
		var status *lvm.PoolStatus
		if err == nil && active {
			status, err = engine.StatusAt(m.Engine, path, "thin-pool", dm.ParsePool)
		}
		switch {
		case err != nil:
			return lvm.Errorf(lvm.KindBusy, "cannot determine whether the thin pool of snapshot %s has committed it; retry: %w", r.name, err)
		case status == nil:
			return lvm.Errorf(lvm.KindBusy, "the thin pool of snapshot %s was deactivated meanwhile; retry", r.name)
		case status.CommitsNothing():
			return lvm.Errorf(lvm.KindBusy, "the thin pool of snapshot %s may not have committed it: %s", r.name, status.FailureReason())
		}
	}
	return nil
}

// prepare adds a reserved snapshot, and its volume if that is active, to the work. A snapshot of an inactive volume in an inactive pool stays as it
// was reserved: no program has written to the volume since.
func (m *Maker) prepare(ctx context.Context, s lvm.State, work *stall, sn lvm.Snapshot, wasIdle bool) error {
	g, lv, v, err := s.FindVolume(sn.Source)
	if err != nil {
		return err
	}
	made, pool := g.FindLV(sn.ID.LV), g.FindLV(lv.Pool)
	if made == nil || made.UUID != sn.UUID || pool == nil || made.ThinID == 0 || lv.ThinID == 0 || made.Pool != lv.Pool {
		return lvm.Errorf(lvm.KindBusy, "another program changed volume %s/%s, its snapshot %s or the thin pool %s; retry", g.Name, lv.Name, sn.ID.LV, lv.Pool)
	}
	name := string(g.Name) + "/" + lv.Name
	path, active, err := m.Engine.FindDevice(ctx, v.ID, v.UUID)
	if err != nil {
		return err
	}
	if !active && !wasIdle {
		return lvm.Errorf(lvm.KindBusy, "volume %s was deactivated meanwhile; retry", name)
	}
	tpool := lvm.DeviceUUID(g.UUID, pool.UUID) + "-tpool"
	_, poolActive, err := m.Engine.Machine.Kernel.Device(tpool)
	switch {
	case err != nil:
		return err
	case !active && !poolActive:
		return nil
	}
	if _, raised, err := m.Engine.FindDevice(ctx, sn.ID, sn.UUID); err != nil || raised {
		return errors.Join(err, lvm.Errorf(lvm.KindBusy, "another program activated snapshot %s/%s; retry", g.Name, sn.ID.LV))
	}
	work.retakes = append(work.retakes, retake{name: string(g.Name) + "/" + sn.ID.LV, pool: tpool, id: made.ThinID, origin: lv.ThinID})
	if active {
		work.origins = append(work.origins, origin{name: name, uuid: lvm.DeviceUUID(g.UUID, lv.UUID), path: path, mapping: m.mappingOf(v)})
	}
	return nil
}

// mappingOf returns the function that suspends the mapping of an encrypted volume.
func (m *Maker) mappingOf(v lvm.Volume) func() (func() error, error) {
	if v.Class.Encryption == lvm.EncryptionNone || m.Engine.Config.Encryption == nil {
		return nil
	}
	return func() (func() error, error) { return m.Engine.Config.Encryption.Suspend(v.ID.String()) }
}

// lockCommands keeps an admin's lvm commands away from the groups: one that activates or refreshes a volume would resume it.
func (m *Maker) lockCommands(ctx context.Context, groups []lvm.VGName) (unlock func(), err error) {
	slices.Sort(groups)
	var held []func()
	unlock = func() {
		for _, release := range slices.Backward(held) {
			release()
		}
	}
	waiting, cancel := context.WithTimeout(ctx, oplock.LockPatience)
	defer cancel()
	for _, group := range slices.Compact(groups) {
		release, err := oplock.LockVG(waiting, m.Engine.Config.LockDir, group)
		if err != nil {
			unlock()
			return nil, lvm.Errorf(lvm.KindBusy, "%w", err)
		}
		held = append(held, release)
	}
	return unlock, nil
}

// resumeLater tries to resume a volume until that succeeds, or the driver stops: the next start resumes it.
func (m *Maker) resumeLater(resume func() error) {
	m.Tasks.Start(func(ctx context.Context) {
		for {
			err := resume()
			if err == nil || lvm.KindOf(err) == lvm.KindBusy {
				return
			}
			m.Engine.Log.Error("cannot resume a volume after a group snapshot; I/O to it waits, and the driver retries", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(resumePause):
			}
		}
	})
}
