package engine

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
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
	bindings := e.bindings.of(g.UUID)
	bindings.Lock()
	defer bindings.Unlock()
	active, err := e.activeUnused(ctx, g, lv)
	if err != nil {
		return err
	}
	var down, up []lvmcmd.Step
	if targets, err := targetsOf(g, active); err != nil {
		return err
	} else if len(targets) > 0 {
		down, up = []lvmcmd.Step{{Argv: lvmcmd.DeactivateArgs(g, targets...)}}, []lvmcmd.Step{{Argv: lvmcmd.ActivateArgs(g, targets...)}}
	}
	if lv.Pool != "" {
		pool, err := lvmcmd.TargetOf(g.Name, lv.Pool)
		if err != nil {
			return err
		}
		// lvcreate has activated the pool itself, too. A pool that was written to without its disk has failed, and stays so for as long as it is active.
		down = append(down, lvmcmd.Step{Argv: lvmcmd.DeactivateArgs(g, pool)})
	}
	for _, replaced := range active {
		if e.Replaced != nil {
			e.Replaced(replaced.UUID)
		}
	}
	failure := e.Run(ctx, g, down)
	e.removeStaleLegs(g, g.ComponentsByName(lv.Pool)) // LVM ignores a pool of which a killed deactivation left only hidden devices
	if len(up) > 0 {                                  // an admin's volumes too, and what LVM deactivated before it failed
		failure = errors.Join(failure, e.Run(ctx, g, up))
	}
	return failure
}

// activeUnused returns the volume and the others of its thin pool that are active. KindInUse: one of them is in use. It closes encrypted volumes that a
// failed NodeStageVolume left open.
func (e *Engine) activeUnused(ctx context.Context, g lvm.Group, lv lvm.LV) (active []lvm.LV, err error) {
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
		if v, managed := other.AsVolume(); managed && v.Cluster == e.Config.Cluster {
			if err := e.CloseUnused(ctx, v, "activated again"); err != nil {
				return nil, err
			}
		}
		if err := e.Machine.Kernel.CheckUnused(ctx, path); err != nil {
			return nil, err
		}
		active = append(active, other)
	}
	return active, nil
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

// bindings keeps reactivate and the publication of raw devices apart, by group. A published raw device is only bound at a pod's path, which LVM does not
// see. If the driver publishes it after the check that nothing uses it, LVM deactivates it, and the kernel gives its number, which the pod has, to the
// next device.
type bindings struct {
	mu     sync.Mutex
	groups map[lvm.VGUUID]*sync.RWMutex
}

func (b *bindings) of(group lvm.VGUUID) *sync.RWMutex {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.groups == nil {
		b.groups = map[lvm.VGUUID]*sync.RWMutex{}
	}
	if b.groups[group] == nil {
		b.groups[group] = &sync.RWMutex{}
	}
	return b.groups[group]
}

// Binding keeps the devices of a group from being deactivated, and activated again, until bound is called.
func (e *Engine) Binding(group lvm.VGUUID) (bound func()) {
	guard := e.bindings.of(group)
	guard.RLock()
	return guard.RUnlock
}
