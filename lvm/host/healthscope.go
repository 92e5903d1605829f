package host

import (
	"context"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// HealthScope reports what Health can check. It starts no process.
func (h *Host) HealthScope(ctx context.Context) (lvm.HealthScope, error) {
	s, err := h.cachedState(ctx)
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
			_, active := paths[lvm.DeviceUUID(g.UUID, p.lv.UUID)]
			o.Volumes[p.lv.UUID] = lvm.VolumeScope{Active: active, NeedsKernel: strings.HasPrefix(p.lv.Type, "raid")}
			if pool := g.FindLV(p.lv.Pool); p.lv.Pool != "" && pool != nil {
				_, o.Pools[g.UUID+"/"+pool.Name] = paths[lvm.DeviceUUID(g.UUID, pool.UUID)+"-tpool"]
			}
		}
	}
	return o, nil
}

// readyIn lists the ready volumes of this cluster in a group.
func (h *Host) readyIn(g lvm.Group) (ready []checkedVolume) {
	for _, lv := range g.LVs {
		v, ours, err := lvm.VolumeOf(g, lv)
		if err == nil && ours && v.Cluster == h.cfg.Cluster && v.State == lvm.StateReady {
			ready = append(ready, checkedVolume{v, lv})
		}
	}
	return ready
}

// Refusal returns why the driver refuses changes to the group of that name now; nil: it does not, or the group does not exist.
// It starts no process.
func (h *Host) Refusal(ctx context.Context, group string) error {
	s, err := h.cachedState(ctx)
	if err != nil {
		return err
	}
	for _, g := range s.Groups {
		if g.Name == group {
			return lvm.CheckWritable(s, g)
		}
	}
	return nil
}
