package main

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// nodeCollector reads the document about the node only during a scrape. Its metrics are a view of it.
type nodeCollector struct {
	read func() report.Node
	log  *slog.Logger
}

// nodeMetrics are the metrics of the whole node.
var nodeMetrics = newFamily("", nil, func(report.Node) []string { return nil },
	gauge("operations_in_flight", "Number of operations on volumes and snapshots that are running.", func(n report.Node) float64 { return size(n.InFlight) }),
	gauge("reading_age_seconds", "Age of what the driver read for this scrape. More than 2 s if an unresponsive disk or a busy node delays a reading: then the scrape has the last one, until it is a minute old.",
		func(n report.Node) float64 { return time.Since(n.Time).Seconds() }),
	gauge("metadata_verified", "1 if LVM's report agrees with what the driver reads from the disks. 0 if they differ in a volume group, which the driver then does not change.",
		func(n report.Node) float64 { return truth(n.MetadataDifference == "") }))

// stateCount is the number of volumes in a state.
type stateCount struct {
	state lvm.VolumeState
	count int
}

var stateMetrics = newFamily("", []string{"state"}, func(c stateCount) []string { return []string{string(c.state)} },
	gauge("volumes", "Number of volumes of this cluster on this node, by state.", func(c stateCount) float64 { return size(c.count) }))

// countedGroup is a volume group with the number of this cluster's volumes in it.
type countedGroup struct {
	report.Group
	volumes int
}

var groupLabels = []string{"vg", "vg_uuid"}

var groupMetrics = newFamily("volume_group_", groupLabels, func(g countedGroup) []string { return []string{string(g.Name), string(g.UUID)} },
	gauge("size_bytes", "Size of the volume group, without missing physical volumes.", func(g countedGroup) float64 { return size(g.Size) }),
	gauge("free_bytes", "Free space in the volume group.", func(g countedGroup) float64 { return size(g.Free) }),
	gauge("volumes", "Number of volumes of this cluster in the volume group.", func(g countedGroup) float64 { return size(g.volumes) }),
	gauge("blocked_seconds", "Time for which an LVM command in the volume group has been running beyond its time limit. 0 if none is.",
		func(g countedGroup) float64 { return g.BlockedSeconds }))

var backlogMetrics = newFamily("volume_group_wipe_backlog_", append(slices.Clone(groupLabels), "claim_namespace"),
	func(b report.Backlog) []string { return []string{string(b.Group), string(b.UUID), b.Namespace} },
	gauge("bytes", "Bytes of deleted volumes that are still to be wiped, by the namespace of their claims.", func(b report.Backlog) float64 { return size(b.Bytes) }),
	gauge("volumes", "Number of deleted volumes that are still to be wiped, by the namespace of their claims.", func(b report.Backlog) float64 { return size(b.Volumes) }))

// groupPool is a thin pool with its volume group.
type groupPool struct {
	report.Pool
	group lvm.VGName
	uuid  lvm.VGUUID
}

var poolMetrics = newFamily("thin_pool_", append(slices.Clone(groupLabels), "thin_pool"),
	func(p groupPool) []string { return []string{string(p.group), string(p.uuid), p.Name} },
	gauge("size_bytes", "Size of the thin pool's data.", func(p groupPool) float64 { return size(p.Size) }),
	gauge("used_bytes", "Allocated data of the thin pool. 0 while the pool is inactive.", func(p groupPool) float64 { return size(p.Used) }),
	gauge("metadata_size_bytes", "Size of the thin pool's metadata.", func(p groupPool) float64 { return size(p.MetadataSize) }),
	gauge("metadata_used_bytes", "Used metadata of the thin pool. 0 while the pool is inactive.", func(p groupPool) float64 { return size(p.MetadataUsed) }),
	gauge("provisioned_bytes", "Provisioned size of the thin pool: the sum of the virtual sizes of its volumes and snapshots. A read-only copy of a snapshot counts what the replay of its journal may write.", func(p groupPool) float64 { return size(p.Provisioned) }),
	counter("extensions_total", "Number of times that the driver has extended the thin pool because it filled up.", func(p groupPool) float64 { return size(p.Extensions) }))

var volumeLabels = []string{"vg", "lv", "claim", "claim_namespace"}

func labelsOfVolume(v report.Volume) []string {
	namespace, _, _ := strings.Cut(v.Claim, "/")
	return []string{string(v.Group), v.LV, v.Claim, namespace}
}

// volumeMetrics are at most seven series of a volume.
var volumeMetrics = newFamily("volume_", volumeLabels, labelsOfVolume,
	gauge("size_bytes", "Size of the volume.", func(v report.Volume) float64 { return size(v.Size) }),
	gauge("allocated_bytes", "Allocated data of the thin volume in its pool, including blocks that it shares with snapshots.", func(v report.Volume) float64 {
		if v.Used == nil {
			return absent
		}
		return size(*v.Used)
	}),
	gauge("filesystem_size_bytes", "Size of the volume's mounted file system.", ofFileSystem(func(f report.FileSystem) float64 { return size(f.Size) })),
	gauge("filesystem_used_bytes", "Used space of the volume's mounted file system.", ofFileSystem(func(f report.FileSystem) float64 { return size(f.Used) })),
	gauge("filesystem_available_bytes", "Space of the volume's mounted file system that users other than root can still use.",
		ofFileSystem(func(f report.FileSystem) float64 { return size(f.Available) })),
	gauge("filesystem_inodes", "Number of inodes of the volume's mounted file system. Absent if it has no limit.",
		ofFileSystem(func(f report.FileSystem) float64 { return ifLimited(f, f.Inodes) })),
	gauge("filesystem_inodes_used", "Number of used inodes of the volume's mounted file system. Absent if it has no limit.",
		ofFileSystem(func(f report.FileSystem) float64 { return ifLimited(f, f.InodesUsed) })))

// ioMetrics are six series of an active volume, of a driver that limits I/O, and one for each limit.
var ioMetrics = newFamily("volume_", volumeLabels, labelsOfVolume,
	counter("reads_completed_total", "Completed reads of the volume since it is active.", func(v report.Volume) float64 { return size(v.IO.Reads) }),
	counter("writes_completed_total", "Completed writes to the volume since it is active.", func(v report.Volume) float64 { return size(v.IO.Writes) }),
	counter("read_bytes_total", "Bytes read from the volume since it is active.", func(v report.Volume) float64 { return size(v.IO.ReadBytes) }),
	counter("written_bytes_total", "Bytes written to the volume since it is active.", func(v report.Volume) float64 { return size(v.IO.WrittenBytes) }),
	counter("read_time_seconds_total", "Time of all completed reads together, without the wait for a limit.", func(v report.Volume) float64 { return v.IO.ReadSeconds }),
	counter("write_time_seconds_total", "Time of all completed writes together, without the wait for a limit.", func(v report.Volume) float64 { return v.IO.WriteSeconds }),
	gauge("read_iops_limit", "Limit of reads per second. Absent without a limit.", func(v report.Volume) float64 { return unlessZero(v.IO.ReadIOPSLimit) }),
	gauge("write_iops_limit", "Limit of writes per second. Absent without a limit.", func(v report.Volume) float64 { return unlessZero(v.IO.WriteIOPSLimit) }),
	gauge("read_bandwidth_limit_bytes", "Limit of bytes read per second. Absent without a limit.", func(v report.Volume) float64 { return unlessZero(v.IO.ReadBandwidthLimit) }),
	gauge("write_bandwidth_limit_bytes", "Limit of bytes written per second. Absent without a limit.", func(v report.Volume) float64 { return unlessZero(v.IO.WriteBandwidthLimit) }))

// unlessZero returns a limit, if there is one.
func unlessZero[N ~int64](limit N) float64 {
	if limit == 0 {
		return absent
	}
	return size(limit)
}

// ofFileSystem returns the value of a volume's file system, if it is mounted and answers.
func ofFileSystem(value func(report.FileSystem) float64) func(report.Volume) float64 {
	return func(v report.Volume) float64 {
		if v.FileSystem == nil || v.FileSystem.Error != "" {
			return absent
		}
		return value(*v.FileSystem)
	}
}

// ifLimited returns a number of inodes, if the file system has a limit of them.
func ifLimited(f report.FileSystem, inodes int64) float64 {
	if f.Inodes == 0 {
		return absent
	}
	return size(inodes)
}

// physicalVolume is a physical volume of a group, or of a lost one.
type physicalVolume struct {
	report.LostDisk
	size    lvm.Bytes
	missing bool
}

var pvLabels = append(slices.Clone(groupLabels), "pv_uuid")

func (pv physicalVolume) labels() []string {
	return []string{string(pv.Group), string(pv.GroupUUID), pv.PV}
}

var pvMetrics = newFamily("physical_volume_", pvLabels, physicalVolume.labels,
	gauge("size_bytes", "Size of the physical volume. 0 if it is unknown because its whole volume group is lost.", func(pv physicalVolume) float64 { return size(pv.size) }),
	gauge("missing", "1 if the physical volume is missing or unresponsive.", func(pv physicalVolume) float64 { return truth(pv.missing) }))

var diskMetrics = newFamily("physical_volume_", append(slices.Clone(pvLabels), "device", "model", "serial", "slot"),
	func(pv physicalVolume) []string { return append(pv.labels(), pv.Path, pv.Model, pv.Serial, pv.Slot) },
	gauge("info", "1 for each physical volume, with the disk that it is or was on.", func(physicalVolume) float64 { return 1 }))

var conditionMetrics = newFamily("volume_", []string{"condition", "vg", "lv", "claim"},
	func(c report.Condition) []string {
		_, lv, _ := strings.Cut(c.Volume, "/")
		return []string{c.Type, string(c.Group), lv, c.Claim}
	},
	gauge("condition", "1 for each condition of a volume, or of a volume group if lv is empty.", func(report.Condition) float64 { return 1 }))

// reasonSum sums up the orphans with one reason.
type reasonSum struct {
	reason report.Reason
	count  int
	bytes  lvm.Bytes
}

var orphanMetrics = newFamily("orphaned_", []string{"reason"}, func(s reasonSum) []string { return []string{string(s.reason)} },
	gauge("volumes", "Number of orphaned volumes and snapshots on this node, by reason. Updated once an hour.", func(s reasonSum) float64 { return size(s.count) }),
	gauge("volume_bytes", "Size of the orphaned volumes and snapshots on this node, by reason. Updated once an hour.", func(s reasonSum) float64 { return size(s.bytes) }))

func (c nodeCollector) Describe(out chan<- *prometheus.Desc) {
	for _, describe := range []func(chan<- *prometheus.Desc){
		nodeMetrics.describe, stateMetrics.describe, groupMetrics.describe, backlogMetrics.describe, poolMetrics.describe, volumeMetrics.describe, ioMetrics.describe,
		pvMetrics.describe, diskMetrics.describe, conditionMetrics.describe, orphanMetrics.describe,
	} {
		describe(out)
	}
}

func (c nodeCollector) Collect(out chan<- prometheus.Metric) {
	n := c.read()
	if len(n.Unknown) > 0 {
		c.log.Warn("cannot read all metrics of this node", "error", strings.Join(n.Unknown, "; "))
	}
	ours := slices.DeleteFunc(slices.Clone(n.Volumes), func(v report.Volume) bool { return v.Cluster != n.Cluster })
	nodeMetrics.collect(out, []report.Node{n})
	stateMetrics.collect(out, statesOf(ours))
	groupMetrics.collect(out, countedGroups(n.Groups, ours))
	backlogMetrics.collect(out, backlogsOf(n.Inventory))
	poolMetrics.collect(out, poolsOf(n.Groups))
	ready := slices.DeleteFunc(ours, func(v report.Volume) bool { return v.State != string(lvm.StateReady) })
	volumeMetrics.collect(out, ready)
	ioMetrics.collect(out, slices.DeleteFunc(ready, func(v report.Volume) bool { return v.IO == nil }))
	pvs := physicalVolumes(n.Inventory)
	pvMetrics.collect(out, pvs)
	diskMetrics.collect(out, pvs)
	conditionMetrics.collect(out, n.Conditions)
	orphanMetrics.collect(out, orphansOf(n.Comparison))
}

func statesOf(volumes []report.Volume) (counts []stateCount) {
	in := map[string]int{}
	for _, v := range volumes {
		in[v.State]++
	}
	for _, state := range []lvm.VolumeState{lvm.StateCreating, lvm.StateZeroing, lvm.StateReady, lvm.StateDeleting} {
		counts = append(counts, stateCount{state, in[string(state)]})
	}
	return counts
}

func countedGroups(groups []report.Group, volumes []report.Volume) (counted []countedGroup) {
	in := map[string]int{} // by the group's UUID
	for _, v := range volumes {
		uuid, _, _ := strings.Cut(v.ID, "/")
		in[uuid]++
	}
	for _, g := range groups {
		counted = append(counted, countedGroup{g, in[string(g.UUID)]})
	}
	return counted
}

// backlogsOf returns the backlogs, and an empty one for each group without one: alerts on a constant backlog need the zeroes.
func backlogsOf(inv report.Inventory) []report.Backlog {
	all := slices.Clone(inv.Backlogs)
	for _, g := range inv.Groups {
		if !slices.ContainsFunc(all, func(b report.Backlog) bool { return b.UUID == g.UUID }) {
			all = append(all, report.Backlog{Group: g.Name, UUID: g.UUID})
		}
	}
	return all
}

func poolsOf(groups []report.Group) (pools []groupPool) {
	for _, g := range groups {
		for _, p := range g.Pools {
			pools = append(pools, groupPool{p, g.Name, g.UUID})
		}
	}
	return pools
}

// physicalVolumes lists those of all groups, and of lost groups. A duplicate group has the same ones: each is listed once.
func physicalVolumes(inv report.Inventory) (pvs []physicalVolume) {
	for _, g := range inv.Groups {
		for _, pv := range g.PVs {
			disk := report.Disk{Path: pv.Device}
			if pv.Disk != nil {
				disk = *pv.Disk
			}
			pvs = append(pvs, physicalVolume{report.LostDisk{PV: pv.UUID, Group: g.Name, GroupUUID: g.UUID, Disk: disk}, lvm.Bytes(pv.Extents) * g.ExtentSize, pv.Missing || pv.Unresponsive})
		}
	}
	for _, d := range inv.LostDisks {
		pvs = append(pvs, physicalVolume{d, 0, true})
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(pvs, func(pv physicalVolume) bool {
		was := seen[pv.PV]
		seen[pv.PV] = true
		return was
	})
}

// orphansOf sums up the orphans of the last comparison; nil: without an API server there is none.
func orphansOf(c *report.Comparison) (sums []reasonSum) {
	if c == nil {
		return nil
	}
	for _, reason := range report.Reasons {
		sum := reasonSum{reason: reason}
		for _, u := range c.Unreferenced {
			if u.Reason == reason {
				sum.count, sum.bytes = sum.count+1, sum.bytes+u.Size
			}
		}
		sums = append(sums, sum)
	}
	return sums
}
