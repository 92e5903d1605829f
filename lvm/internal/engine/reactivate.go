package engine

import (
	"context"
	"errors"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// reactivate activates a volume again, with its thin pool and the active volumes of this pool. It reloads a RAID volume's table instead, which may be
// in use. KindInUse: the volume, or another of its pool, is in use, and stays as it is. The caller holds the group's lock.
func (e *Engine) reactivate(ctx context.Context, g lvm.Group, lv lvm.LV) error {
	if strings.HasPrefix(lv.Type, "raid") {
		t, err := lvmcmd.TargetOf(g.Name, lv.Name)
		if err != nil {
			return err
		}
		return e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.RefreshArgs(t, g)}})
	}
	end, ok := e.bindings.Begin(string(g.UUID), replacing)
	if !ok {
		return lvm.Errorf(lvm.KindInUse, "a raw device of volume group %s is being published", g.Name)
	}
	defer end()
	active, err := e.activeUnused(ctx, g, lv)
	if err != nil {
		return err
	}
	targets, err := targetsOf(g, active)
	if err != nil {
		return err
	}
	for _, replaced := range active {
		if e.Replaced != nil {
			e.Replaced(replaced.UUID)
		}
	}
	failure := e.deactivate(ctx, g, lv.Pool, targets)
	if len(targets) > 0 { // an admin's volumes too, and what LVM deactivated before it failed
		failure = errors.Join(failure, e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(g, targets...)}}))
	}
	return failure
}

// deactivate deactivates volumes, and then their thin pool unless it is "".
func (e *Engine) deactivate(ctx context.Context, g lvm.Group, pool string, volumes []lvmcmd.Target) error {
	var steps []lvmcmd.Step
	if len(volumes) > 0 {
		steps = append(steps, lvmcmd.Step{Argv: lvmcmd.DeactivateArgs(g, volumes...)})
	}
	if pool != "" {
		t, err := lvmcmd.TargetOf(g.Name, pool)
		if err != nil {
			return err
		}
		// lvcreate has activated the pool itself, too. A pool that was written to without its disk has failed, and stays so for as long as it is active.
		steps = append(steps, lvmcmd.Step{Argv: lvmcmd.DeactivateArgs(g, t)})
	}
	err := e.Run(ctx, g, steps)
	if refusal := (*lvm.ExitError)(nil); err == nil || errors.As(err, &refusal) { // LVM ignores a pool of which a killed deactivation left only hidden devices
		e.removeStaleLegs(g, g.ComponentsByName(pool))
	}
	return err
}

// activeUnused returns the volume and the others of its thin pool that are active. KindInUse: one of them is in use. Otherwise it closes
// encrypted volumes that a failed NodeStageVolume left open.
func (e *Engine) activeUnused(ctx context.Context, g lvm.Group, lv lvm.LV) (active []lvm.LV, err error) {
	var left []lvm.Volume
	for _, other := range g.LVs {
		if other.UUID != lv.UUID && (lv.Pool == "" || other.Pool != lv.Pool) {
			continue
		}
		path, is, err := e.FindDevice(ctx, lvm.ID{VG: g.UUID, LV: other.Name}, other.UUID)
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		open, err := e.leftOpen(ctx, g, other, path)
		if err == nil && open == nil {
			err = e.Machine.Kernel.CheckUnused(ctx, path)
		}
		if err != nil {
			return nil, err
		}
		if active = append(active, other); open != nil {
			left = append(left, *open)
		}
	}
	for _, v := range left {
		if err := e.CloseUnused(ctx, v, "activated again"); err != nil {
			return nil, err
		}
	}
	return active, nil
}

// leftOpen returns the volume at this path if it is an encrypted file system of this cluster that is open but unused. A NodeStageVolume under way has the
// logical volume open, too. Staging a raw volume leaves it open for the publication.
func (e *Engine) leftOpen(ctx context.Context, g lvm.Group, lv lvm.LV, path string) (*lvm.Volume, error) {
	v, managed := lv.AsVolume()
	if !managed || v.Cluster != e.Config.Cluster || v.Block || v.Class.Encryption == lvm.EncryptionNone || e.Config.Encryption == nil {
		return nil, nil
	}
	mapping, _, open, err := e.Config.Encryption.Mapping(v.ID.String())
	if err != nil || !open {
		return nil, err
	}
	opens, err := e.Machine.Kernel.Opens(path)
	if err == nil && opens > 1 {
		err = lvm.Errorf(lvm.KindInUse, "volume %s/%s is being staged", g.Name, lv.Name)
	}
	if err == nil {
		err = e.Machine.Kernel.CheckUnused(ctx, mapping)
	}
	return &v, err
}

func targetsOf(g lvm.Group, lvs []lvm.LV) (targets []lvmcmd.Target, err error) {
	for _, lv := range lvs {
		t, err := lvmcmd.TargetOf(g.Name, lv.Name)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// CloseUnused closes an encrypted volume that a failed NodeStageVolume left open. KindInUse: it is in use, or bound at a pod's path. done
// completes the message "cannot be ...".
func (e *Engine) CloseUnused(ctx context.Context, v lvm.Volume, done string) error {
	if v.Class.Encryption == lvm.EncryptionNone || e.Config.Encryption == nil {
		return nil
	}
	mapping, _, open, err := e.Config.Encryption.Mapping(v.ID.String())
	if err == nil && open {
		err = e.Machine.Kernel.CheckUnused(ctx, mapping)
	}
	if err == nil {
		err = e.Config.Encryption.Unstage(ctx, v.ID.String())
	}
	if err != nil {
		return lvm.Errorf(lvm.KindOf(err), "volume %s/%s cannot be %s: %w", v.Group, v.ID.LV, done, err)
	}
	return nil
}

// The kinds of work that Engine.bindings keeps apart. A published raw device is only bound at a pod's path, which LVM does not see. If the driver
// publishes it after the check that nothing uses it, LVM deactivates it, and the kernel gives its number, which the pod has, to the next device.
const (
	binding   = oplock.First
	replacing = oplock.Second
)

// Binding keeps the devices of a group from being deactivated, and activated again, until bound is called. KindBusy: that is under way.
func (e *Engine) Binding(group lvm.VGUUID) (bound func(), err error) {
	bound, ok := e.bindings.Begin(string(group), binding)
	if !ok {
		return nil, lvm.Errorf(lvm.KindBusy, "the driver activates volumes of volume group %s again; retry", group)
	}
	return bound, nil
}
