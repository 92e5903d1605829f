package health

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/report"
)

// AddTo adds the groups of a state, with their volumes and snapshots, to an inventory.
func (k Checker) AddTo(inv *report.Inventory, s lvm.State) error {
	devices, err := k.Engine.Devices()
	if err != nil {
		return err
	}
	if inv.OnVolumes, err = k.Engine.Machine.Kernel.DevicesOnVolumes(); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot determine which block devices the node has on volumes: %w", err)
	}
	paths := PathsOf(devices)
	for _, g := range s.Groups {
		inv.Groups = append(inv.Groups, k.groupEntry(s, g, paths))
		k.addVolumes(inv, g, paths)
	}
	addLastSnapshots(inv)
	return nil
}

// addLastSnapshots records on each volume when its youngest snapshot was created.
func addLastSnapshots(inv *report.Inventory) {
	last := map[string]time.Time{} // by the volume's handle
	for _, sn := range inv.Snapshots {
		if sn.State == string(lvm.StateReady) && sn.Created.After(last[sn.Source]) {
			last[sn.Source] = sn.Created
		}
	}
	for i, v := range inv.Volumes {
		inv.Volumes[i].LastSnapshot = last[v.ID]
	}
}

func (k Checker) groupEntry(s lvm.State, g lvm.Group, paths map[string]string) report.Group {
	e := report.Group{Name: g.Name, UUID: g.UUID, Tags: g.Tags, Disks: len(g.PVs), Free: g.Bytes(g.FreeExtents()),
		MetadataSize: g.MDASize, MetadataFree: g.MDAFree, AutoActivation: g.AutoActivation && oursAlone(g),
		ExtentSize: g.ExtentSize, PVs: pvEntries(g)}
	for _, pv := range g.PVs {
		if !pv.Missing {
			e.Size += g.Bytes(pv.Extents)
		}
	}
	if err := lvm.CheckWritable(s, g); err != nil {
		e.Problem = err.Error()
	}
	if held, err := oplock.LockHeld(k.Engine.Config.LockDir, g.Name); err != nil {
		k.Engine.Log.Warn("cannot determine whether LVM's lock is held", "vg", g.Name, "error", err)
	} else {
		e.LockHeldSeconds = int64(held.Seconds())
	}
	c := groupCheck{engine: k.Engine, group: g, paths: paths}
	for _, lv := range g.LVs {
		if lv.Thin != nil {
			e.Pools = append(e.Pools, c.poolEntry(lv))
		}
	}
	return e
}

// oursAlone reports whether the group holds only volumes, snapshots and pools of this driver.
func oursAlone(g lvm.Group) bool {
	return !slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool {
		return !lv.Hidden && lv.Managed == nil
	})
}

func (c *groupCheck) poolEntry(lv lvm.LV) report.Pool {
	s, _ := status(c, lvm.DeviceUUID(c.group.UUID, lv.UUID)+"-tpool", "thin-pool", dm.ParsePool) // without a status it counts as inactive
	m := poolMetrics(c.group, lv, s)
	e := report.Pool{Name: m.Name, Size: m.Size, Used: m.Used, MetadataSize: m.MetadataSize, MetadataUsed: m.MetadataUsed,
		Promised: m.Promised, Zero: lv.Thin.Zero, State: report.PoolWorks}
	switch {
	case s == nil:
		e.State = report.PoolInactive
	case s.IsFailed():
		e.State = report.PoolFailed
	case s.IsFull():
		e.State = report.PoolFull
	}
	return e
}

// addVolumes adds the volumes and snapshots of one group.
func (k Checker) addVolumes(inv *report.Inventory, g lvm.Group, paths map[string]string) {
	c := groupCheck{engine: k.Engine, group: g, paths: paths}
	for _, lv := range g.LVs {
		if err := lv.CheckTags(); err != nil {
			inv.Damaged = append(inv.Damaged, err.Error())
			continue
		}
		if v, is := lv.AsVolume(); is {
			inv.Volumes = append(inv.Volumes, report.Volume{ID: v.ID.String(), UUID: v.UUID, Group: v.Group, LV: lv.Name, Name: v.Name,
				Claim: v.Claim, Cluster: v.Cluster, State: string(v.State), Layout: string(v.Class.Layout), Pool: lv.Pool, Size: v.Size,
				Used: c.mapped(lv), Created: lv.Created, Block: v.Block, Encryption: string(v.Class.Encryption)})
			continue
		}
		if sn, is := lv.AsSnapshot(); is {
			inv.Snapshots = append(inv.Snapshots, report.Snapshot{ID: sn.ID.String(), Group: sn.Group, LV: lv.Name, Name: sn.Name,
				Cluster: sn.Cluster, State: string(sn.State), Source: sn.Source.String(), Size: sn.Size, Created: sn.Created})
		}
	}
}

// mapped returns how much of a thin volume the pool has allocated; nil where that is unknown.
func (c *groupCheck) mapped(lv lvm.LV) *lvm.Bytes {
	if lv.Pool == "" {
		return nil
	}
	used, err := status(c, lvm.DeviceUUID(c.group.UUID, lv.UUID), "thin", parseThin)
	if err != nil {
		return nil
	}
	return used
}

// parseThin parses the kernel's status of a thin volume (Linux, Documentation/admin-guide/device-mapper/ thin-provisioning.rst,
// "Status"): the allocated sectors, and the highest of them, `4096 8191`.
func parseThin(params string) (lvm.Bytes, error) {
	first, _, _ := strings.Cut(params, " ")
	sectors, err := strconv.ParseInt(first, 10, 54)
	if err != nil || sectors < 0 {
		return 0, fmt.Errorf("%q is not a thin volume's status", params)
	}
	return lvm.Bytes(sectors) * 512, nil
}
