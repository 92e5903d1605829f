package host

import (
	"context"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// HealthScope tells what Health can see. It starts no process.
func (h *Host) HealthScope(ctx context.Context) (lvm.HealthScope, error) {
	s, err := h.look(ctx)
	if err != nil {
		return lvm.HealthScope{}, err
	}
	devices, err := h.devices()
	if err != nil {
		return lvm.HealthScope{}, err
	}
	paths := pathsOf(devices)
	o := lvm.HealthScope{Groups: map[string]bool{}, Volumes: map[string]lvm.VolumeScope{}, Pools: map[string]bool{}}
	for _, g := range s.Groups {
		volumes := h.readyIn(g)
		o.Groups[g.UUID] = len(volumes) > 0
		for _, p := range volumes {
			_, active := paths[lvm.DmUUID(g.UUID, p.lv.UUID)]
			o.Volumes[p.lv.UUID] = lvm.VolumeScope{Active: active, NeedsKernel: strings.HasPrefix(p.lv.Type, "raid")}
			if pool := g.Named(p.lv.Pool); p.lv.Pool != "" && pool != nil {
				_, o.Pools[g.UUID+"/"+pool.Name] = paths[lvm.DmUUID(g.UUID, pool.UUID)+"-tpool"]
			}
		}
	}
	return o, nil
}

// readyIn lists the ready volumes of this cluster in a group.
func (h *Host) readyIn(g lvm.Group) (ready []patient) {
	for _, lv := range g.LVs {
		v, ours, err := lvm.VolumeOf(g, lv)
		if err == nil && ours && v.Cluster == h.cfg.Cluster && v.State == lvm.StateReady {
			ready = append(ready, patient{v, lv})
		}
	}
	return ready
}

// Refusal says why nothing can be changed in the group of that name now; nil: something can, or there is no such group. It starts
// no process.
func (h *Host) Refusal(ctx context.Context, group string) error {
	s, err := h.look(ctx)
	if err != nil {
		return err
	}
	for _, g := range s.Groups {
		if g.Name == group {
			return lvm.Unchangeable(s, g)
		}
	}
	return nil
}
