package health

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
)

// Checker checks volume groups and their volumes through the kernel alone, without a process.
type Checker struct{ Engine *engine.Engine }

// readyIn lists the ready volumes of this cluster in a group.
func (k Checker) readyIn(g lvm.Group) (ready []checkedVolume) {
	ready = make([]checkedVolume, 0, len(g.LVs))
	for lv, v := range g.Volumes() {
		if v.Cluster == k.Engine.Config.Cluster && v.State == lvm.StateReady {
			ready = append(ready, checkedVolume{v, lv})
		}
	}
	return ready
}

// Findings finds the conditions of this cluster's volumes and their groups; see Host.Health.
func (k Checker) Findings(ctx context.Context, s lvm.State) ([]lvm.Condition, error) {
	mapped, err := k.Engine.CachedDevices()
	if err != nil {
		return nil, err
	}
	paths := pathsOf(mapped.Devices)
	findings := notAccepted(s, time.Now())
	var checks []*groupCheck
	for _, g := range s.Groups {
		c := groupCheck{engine: k.Engine, group: g, paths: paths, onRemovedDisk: mapped.OnRemovedDisk, pools: map[string]*lvm.PoolStatus{}, volumes: k.readyIn(g)}
		if len(c.volumes) > 0 || g.Unreadable != "" {
			checks = append(checks, &c)
		}
	}
	suspended := k.staySuspended(ctx, checks, mapped.Devices)
	for _, c := range checks {
		c.checkVolumes(ctx, suspended)
		findings = append(findings, c.findings...)
	}
	return findings, nil
}

// staySuspended returns the devices of the groups that stay suspended, after one pause for all groups.
func (k Checker) staySuspended(ctx context.Context, checks []*groupCheck, devices []lvm.Device) map[string]bool {
	in := func(devices []lvm.Device) map[string]bool {
		all := map[string]bool{}
		for _, c := range checks {
			maps.Copy(all, engine.SuspendedOf(c.group, devices))
		}
		return all
	}
	first := in(devices)
	if len(first) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(suspendedPause):
	}
	again, err := k.Engine.Devices()
	if err != nil {
		return nil
	}
	second := in(again)
	maps.DeleteFunc(first, func(uuid string, _ bool) bool { return !second[uuid] })
	return first
}

// suspendedPause is longer than LVM keeps a device suspended.
const suspendedPause = time.Second

// Scope reports what findings can check.
func (k Checker) Scope(s lvm.State) (lvm.HealthScope, error) {
	mapped, err := k.Engine.CachedDevices()
	if err != nil {
		return lvm.HealthScope{}, err
	}
	paths := pathsOf(mapped.Devices)
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
