package health

import (
	"context"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
)

// Checker checks volume groups and their volumes through the kernel alone, without a process.
type Checker struct{ Engine *engine.Engine }

// readyIn lists the ready volumes of this cluster in a group.
func (k Checker) readyIn(g lvm.Group) (ready []checkedVolume) {
	for lv, v := range g.Volumes() {
		if v.Cluster == k.Engine.Config.Cluster && v.State == lvm.StateReady {
			ready = append(ready, checkedVolume{v, lv})
		}
	}
	return ready
}

// Findings finds the conditions of this cluster's volumes and their groups; see Host.Health.
func (k Checker) Findings(ctx context.Context, s lvm.State) ([]lvm.Condition, error) {
	devices, err := k.Engine.Devices()
	if err != nil {
		return nil, err
	}
	paths := pathsOf(devices)
	findings := notAccepted(s, time.Now())
	for _, g := range s.Groups {
		c := groupCheck{engine: k.Engine, group: g, devices: devices, paths: paths, pools: map[string]*lvm.PoolStatus{}, volumes: k.readyIn(g)}
		if len(c.volumes) > 0 || g.Unreadable != "" {
			c.checkVolumes(ctx)
			findings = append(findings, c.findings...)
		}
	}
	return findings, nil
}

// Scope reports what findings can check.
func (k Checker) Scope(s lvm.State) (lvm.HealthScope, error) {
	devices, err := k.Engine.Devices()
	if err != nil {
		return lvm.HealthScope{}, err
	}
	paths := pathsOf(devices)
	o := lvm.HealthScope{Groups: map[lvm.VGUUID]bool{}, Volumes: map[string]lvm.VolumeScope{}, Pools: map[string]bool{}}
	for _, g := range s.Groups {
		volumes := k.readyIn(g)
		o.Groups[g.UUID] = len(volumes) > 0 || g.Unreadable != ""
		for _, p := range volumes {
			_, active := paths[lvm.DeviceUUID(g.UUID, p.lv.UUID)]
			o.Volumes[p.lv.UUID] = lvm.VolumeScope{Active: active, NeedsKernel: strings.HasPrefix(p.lv.Type, "raid")}
			if pool := g.FindLV(p.lv.Pool); p.lv.Pool != "" && pool != nil {
				_, o.Pools[string(g.UUID)+"/"+pool.Name] = paths[lvm.DeviceUUID(g.UUID, pool.UUID)+"-tpool"]
			}
		}
	}
	return o, nil
}
