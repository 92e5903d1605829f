package engine

import (
	"maps"
	"slices"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// PoolStatus returns the kernel's status of a pool; nil while the pool is not active.
func (e *Engine) PoolStatus(g lvm.Group, lv lvm.LV) (*lvm.PoolStatus, error) {
	path, active, err := e.Machine.Kernel.Device(lvm.DeviceUUID(g.UUID, lv.UUID) + "-tpool")
	if err != nil || !active {
		return nil, err
	}
	return StatusAt(e, path, "thin-pool", dm.ParsePool)
}

// withOvercommit sets the OvercommitReason of each overcommitted pool in the group.
func (e *Engine) withOvercommit(g lvm.Group) lvm.Group {
	why := map[string]string{}
	for _, lv := range g.LVs {
		if lv.Thin == nil {
			continue
		}
		s, err := e.PoolStatus(g, lv)
		if err != nil || s == nil {
			continue // an inactive pool gets no writes
		}
		if p, err := alloc.PoolOf(g, lvm.Class{Pool: lv.Name}); err == nil {
			if text := p.OvercommitReason(*s); text != "" {
				why[lv.Name] = text
			}
		}
	}
	if len(why) == 0 {
		return g
	}
	g.LVs = slices.Clone(g.LVs)
	for name := range maps.Keys(why) {
		marked := *g.FindLV(name).Thin
		marked.OvercommitReason = why[name]
		g.FindLV(name).Thin = &marked
	}
	return g
}

// StatusAt returns the kernel's status of the device at this path if it has a target of this type, or nil.
func StatusAt[S any](e *Engine, path, target string, parse func(string) (S, error)) (*S, error) {
	kind, params, err := e.Machine.Kernel.Status(path)
	if err != nil || kind != target {
		return nil, err // the device may have disappeared meanwhile
	}
	s, err := parse(params)
	if err != nil {
		e.Log.Warn("cannot parse device-mapper status", "device", path, "error", err)
		return nil, err
	}
	return &s, nil
}
