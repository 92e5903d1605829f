package health

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
)

func pathsOf(devices []lvm.Device) map[string]string {
	paths := make(map[string]string, len(devices))
	for _, d := range devices {
		paths[d.UUID] = d.Path
	}
	return paths
}

// groupCheck checks one group and this cluster's volumes in it.
type groupCheck struct {
	engine   *engine.Engine
	group    lvm.Group
	paths    map[string]string
	volumes  []checkedVolume
	pools    map[string]*lvm.PoolStatus // by name; nil: not active, or no status from the kernel
	findings []lvm.Condition

	onRemovedDisk map[string]bool // lvm.Stacks
}

type checkedVolume struct {
	volume lvm.Volume
	lv     lvm.LV
}

func (c *groupCheck) checkVolumes(ctx context.Context, suspended map[string]bool) {
	missing := c.checkGroup()
	c.checkBlockSizes()
	for _, p := range c.volumes {
		if len(suspended) > 0 && slices.ContainsFunc(lvm.ComponentsAndPool(c.group, p.lv), func(part lvm.LV) bool { return suspended[lvm.DeviceUUID(c.group.UUID, part.UUID)] }) {
			c.add(lvm.ConditionVolumeSuspended, p.volume, "its device is suspended, and I/O to it waits; resume it with lvchange --refresh %s/%s, or restart this driver", c.group.Name, p.lv.Name)
		}
		if len(missing) > 0 {
			c.checkMissing(p, missing)
		}
		if strings.HasPrefix(p.lv.Type, "raid") {
			c.checkRAID(p)
		}
		c.checkMapped(p)
		if p.lv.Pool != "" {
			c.checkThin(ctx, p)
		}
	}
}

func (c *groupCheck) add(kind lvm.ConditionType, v lvm.Volume, format string, args ...any) {
	c.findings = append(c.findings, lvm.Condition{Type: kind, Group: c.group.Name, VG: c.group.UUID, Volume: v, Text: fmt.Sprintf(format, args...)})
}

// addMissing is add for what missing physical volumes, given by their UUIDs, do: it is reported again when they are others.
func (c *groupCheck) addMissing(kind lvm.ConditionType, v lvm.Volume, missing, format string, args ...any) {
	c.add(kind, v, format, args...)
	c.findings[len(c.findings)-1].Cause = missing
}

// addPool is add for a condition of a thin pool.
func (c *groupCheck) addPool(kind lvm.ConditionType, v lvm.Volume, pool, format string, args ...any) {
	c.add(kind, v, format, args...)
	c.findings[len(c.findings)-1].Pool = pool
}

// checkGroup adds what concerns all volumes of the group, and returns the UUIDs of its missing physical volumes.
func (c *groupCheck) checkGroup() map[string]bool {
	g := c.group
	missing := map[string]bool{}
	silent := false
	for _, pv := range g.PVs {
		silent = silent || pv.Unresponsive
		if pv.Missing {
			missing[pv.UUID] = true
		}
	}
	switch {
	case silent:
		c.add(lvm.ConditionDiskUnresponsive, lvm.Volume{}, "volume group %s: %s", g.Name, g.Problem)
	case g.Problem != "":
		c.add(lvm.ConditionVolumeGroupUnusable, lvm.Volume{}, "volume group %s is unusable: %s", g.Name, g.Problem)
	}
	var gone []string
	for _, pv := range g.PVs {
		switch {
		case pv.ReappearedDevice != "":
			c.addMissing(lvm.ConditionPhysicalVolumeMissing, lvm.Volume{}, names(missing), "the driver creates nothing in volume group %s: %s", g.Name, pv.DescribeMissing(g.Name))
		case pv.Missing:
			gone = append(gone, pv.UUID)
		}
	}
	if len(gone) > 0 {
		c.addMissing(lvm.ConditionPhysicalVolumeMissing, lvm.Volume{}, names(missing), "volume group %s has a missing physical volume (%s): the driver creates nothing in it until the disk is back. If the disk is lost, repair the RAID volumes (lvconvert --repair); vgreduce --removemissing --force %s then removes the volumes that were on it alone",
			g.Name, strings.Join(gone, ", "), g.Name)
	}
	return missing
}

func names(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ", ") }

// checkMissing adds what the missing physical volumes do to a volume.
func (c *groupCheck) checkMissing(p checkedVolume, missing map[string]bool) {
	below := lvm.PVsBelow(c.group, p.lv)
	maps.DeleteFunc(below, func(pv string, _ bool) bool { return !missing[pv] })
	lost := cmp.Or(names(below), names(missing))
	switch d := c.group.DamageOf(p.lv, missing, 0); {
	case d.Lost:
		c.addMissing(lvm.ConditionVolumeDataMissing, p.volume, lost, "a part of its data is on the missing physical volume %s: reconnect the disk, or restore the volume from a backup", lost)
	case d.Legs > 0:
		c.addMissing(lvm.ConditionVolumeDegraded, p.volume, lost, "%d of its %d legs are on the missing physical volume %s: all its data is there, with less redundancy; reconnect the disk, or replace the legs with lvconvert --repair", d.Legs, d.Of, lost)
	}
}

// checkRAID adds what the kernel reports of an active RAID volume.
func (c *groupCheck) checkRAID(p checkedVolume) {
	s, err := status(c, lvm.DeviceUUID(c.group.UUID, p.lv.UUID), "raid", dm.ParseRAID)
	if err != nil || s == nil {
		return
	}
	known := c.has(lvm.ConditionVolumeDegraded, p.volume) || c.has(lvm.ConditionVolumeDataMissing, p.volume)
	switch d := s.Damage(); {
	case known:
	case d.Lost:
		c.add(lvm.ConditionVolumeDataMissing, p.volume, "%d of its %d legs have failed (%s), more than the layout tolerates: repair the disks and run lvchange --refresh %s/%s, or restore the volume from a backup",
			d.Legs, d.Of, s.Legs, c.group.Name, p.lv.Name)
	case d.Legs > 0:
		c.add(lvm.ConditionVolumeDegraded, p.volume, "%d of its %d legs have failed (%s): all its data is there, with less redundancy; lvchange --refresh %s/%s uses a disk that works again, lvconvert --repair %s/%s replaces the leg", d.Legs, d.Of, s.Legs, c.group.Name, p.lv.Name, c.group.Name, p.lv.Name)
	}
	if s.Rebuilding() {
		c.add(lvm.ConditionVolumeRebuilding, p.volume, "rebuilding a leg: %s done", lvm.Percent(s.Done, s.Total))
	}
}

// checkMapped adds that an active volume maps a removed disk, although the disk is back as another device.
func (c *groupCheck) checkMapped(p checkedVolume) {
	path, active := c.paths[lvm.DeviceUUID(c.group.UUID, p.lv.UUID)]
	if !active || !c.onRemovedDisk[path] {
		return
	}
	pvs, removed, err := c.engine.UnmappedPVs(c.group, p.lv, path)
	if err != nil || len(pvs) == 0 {
		return
	}
	gone, back := strings.Join(removed, ", "), pvs[0].Device
	switch {
	case c.has(lvm.ConditionVolumeDegraded, p.volume) || c.has(lvm.ConditionVolumeDataMissing, p.volume):
	case strings.HasPrefix(p.lv.Type, "raid"):
		c.add(lvm.ConditionVolumeDegraded, p.volume, "a leg of it uses the removed disk %s, which is back as %s: all its data is there, with less redundancy; lvchange --refresh %s/%s uses %s", gone, back, c.group.Name, p.lv.Name, back)
	case p.lv.Pool != "":
		c.add(lvm.ConditionVolumeOnRemovedDisk, p.volume, "reads and writes fail: its device uses the removed disk %s, which is back as %s; end all pods with volumes of the thin pool %s/%s: the driver uses %s when the next one starts", gone, back, c.group.Name, p.lv.Pool, back)
	default:
		c.add(lvm.ConditionVolumeOnRemovedDisk, p.volume, "reads and writes fail: its device uses the removed disk %s, which is back as %s; end its pods: the driver uses %s when the next one starts", gone, back, back)
	}
}

func (c *groupCheck) has(kind lvm.ConditionType, v lvm.Volume) bool {
	return slices.ContainsFunc(c.findings, func(f lvm.Condition) bool { return f.Type == kind && f.Volume.UUID == v.UUID })
}

// status returns the kernel's status of an active device with a target of this type, or nil.
func status[S any](c *groupCheck, uuid, target string, parse func(string) (S, error)) (*S, error) {
	path, active := c.paths[uuid]
	if !active {
		return nil, nil
	}
	return engine.StatusAt(c.engine, path, target, parse)
}
