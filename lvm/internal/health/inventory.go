package health

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/report"
)

// AddTo adds the groups of a state, with their volumes and snapshots, to an inventory. After an error, all devices count as inactive.
// extensionsOf returns how often the driver has extended the thin pool with that UUID.
func (k Checker) AddTo(inv *report.Inventory, s lvm.State, extensionsOf func(uuid string) int) error {
	mapped, err := k.Engine.CachedDevices()
	if mapped.Unstacked != nil {
		err = errors.Join(err, lvm.Errorf(lvm.KindInternal, "cannot determine which block devices the node has on volumes: %w", mapped.Unstacked))
	}
	inv.OnVolumes = mapped.OnVolumes
	paths := pathsOf(mapped.Devices)
	for _, g := range s.Groups {
		c := groupCheck{engine: k.Engine, group: g, paths: paths}
		inv.Groups = append(inv.Groups, c.groupEntry(s, extensionsOf))
		c.addVolumes(inv)
	}
	addLastSnapshots(inv)
	return err
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

func (c *groupCheck) groupEntry(s lvm.State, extensionsOf func(uuid string) int) report.Group {
	g := c.group
	e := report.Group{Name: g.Name, UUID: g.UUID, Tags: g.Tags, Disks: len(g.PVs), Free: g.Bytes(g.FreeExtents()),
		MetadataSize: g.MDASize, MetadataFree: g.MDAFree, AutoActivation: g.AutoActivation && oursAlone(g),
		ExtentSize: g.ExtentSize, PVs: pvEntries(g), Pools: c.poolEntries(extensionsOf)}
	for _, pv := range g.PVs {
		if !pv.Missing {
			e.Size += g.Bytes(pv.Extents)
		}
	}
	if err := lvm.CheckWritable(s, g); err != nil {
		e.Problem = err.Error()
	}
	blocked, _ := c.engine.Locks.BlockedFor(g.UUID)
	e.BlockedSeconds = blocked.Seconds()
	if held, err := oplock.LockHeld(c.engine.Config.LockDir, g.Name); err != nil {
		c.engine.Log.Warn("cannot determine whether LVM's lock is held", "vg", g.Name, "error", err)
	} else {
		e.LockHeldSeconds = int64(held.Seconds())
	}
	return e
}

// oursAlone reports whether the group holds only volumes, snapshots and pools of this driver.
func oursAlone(g lvm.Group) bool {
	return !slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool {
		return !lv.Hidden && lv.Managed == nil
	})
}

// addVolumes adds the volumes and snapshots of the group.
func (c *groupCheck) addVolumes(inv *report.Inventory) {
	g := c.group
	inv.Volumes = slices.Grow(inv.Volumes, len(g.LVs))
	for _, lv := range g.LVs {
		if err := lv.CheckTags(); err != nil {
			inv.Damaged = append(inv.Damaged, err.Error())
			continue
		}
		if v, is := lv.AsVolume(); is {
			inv.Volumes = append(inv.Volumes, report.Volume{ID: v.ID.String(), UUID: v.UUID, Group: v.Group, LV: lv.Name, Name: v.Name,
				Claim: v.Claim, Cluster: v.Cluster, State: string(v.State), Layout: string(v.Class.Layout), Pool: lv.Pool, Size: v.Size,
				Used: c.mapped(lv), Created: lv.Created, Block: v.Block, Encryption: string(v.Class.Encryption), IOLimits: report.IOLimitsOf(v)})
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
