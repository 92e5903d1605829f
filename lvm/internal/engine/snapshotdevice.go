package engine

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// Snapshots are inactive, so that nothing on the node reads what tenants wrote to them. A full copy for another node needs the device of one: it
// is read-only, and exists for the time of the copy.

// ActivateSnapshot returns the device of a ready snapshot of this cluster, and activates it if necessary.
func (e *Engine) ActivateSnapshot(ctx context.Context, id lvm.ID, uuid string) (string, error) {
	s, unlock, err := e.Locked(ctx, id.VG, "activating snapshot "+id.LV, e.ReadState)
	if err != nil {
		return "", err
	}
	defer unlock()
	g, sn, err := s.FindSnapshot(id)
	switch {
	case err != nil:
		return "", err
	case sn.UUID != uuid || sn.Cluster != e.Config.Cluster || sn.State != lvm.StateReady:
		return "", g.AbsentError("snapshot %s is not the ready one with UUID %s of this cluster", id, uuid)
	}
	path, active, err := e.FindDevice(ctx, id, uuid)
	if err != nil {
		return "", err
	}
	if active {
		return path, e.ResumeDevice(ctx, g, id.LV, path)
	}
	if lv := g.FindLV(id.LV); lv != nil {
		if err := activatable(g, *lv); err != nil {
			return "", err
		}
	}
	t, err := lvmcmd.TargetOf(g.Name, id.LV)
	if err != nil {
		return "", err
	}
	failure := e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(g, t)}})
	path, active, err = e.FindDevice(ctx, id, uuid)
	if err == nil && !active {
		err = lvm.Errorf(lvm.KindInternal, "cannot activate snapshot %s: %w", t, OrNoEffect(failure))
	}
	return path, err
}

// DeactivateSnapshot removes the device of a snapshot, unless something has it open.
func (e *Engine) DeactivateSnapshot(ctx context.Context, id lvm.ID, uuid string) error {
	if _, active, err := e.FindDevice(ctx, id, uuid); err != nil || !active {
		return err
	}
	s, unlock, err := e.Locked(ctx, id.VG, "deactivating snapshot "+id.LV, e.ReadState)
	if err != nil {
		return err
	}
	defer unlock()
	g, sn, err := s.FindSnapshot(id)
	if err != nil || sn.UUID != uuid {
		return err
	}
	path, active, err := e.FindDevice(ctx, id, uuid)
	if err != nil || !active {
		return err
	}
	if e.Machine.Kernel.CheckUnused(ctx, path) != nil {
		return nil // another copy reads it
	}
	t, err := lvmcmd.TargetOf(g.Name, id.LV)
	if err != nil {
		return err
	}
	return e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.DeactivateArgs(g, t)}})
}
