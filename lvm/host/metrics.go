package host

import (
	"context"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/health"
	"github.com/nodelvm/nodelvm/report"
)

// Metrics are the metrics of a Host at one moment.
type Metrics struct {
	Groups      []GroupMetrics
	Volumes     map[lvm.VolumeState]int // of this cluster
	WipeBacklog lvm.Bytes               // what is not wiped yet of the deleted volumes
	Backlogs    []report.Backlog        // the same, by group and namespace
	InFlight    int                     // operations in flight
	ReaderOff   bool                    // the direct read differed from LVM's report: each read takes an LVM process since
}

// GroupMetrics are the metrics of one volume group.
type GroupMetrics struct {
	Name    lvm.VGName
	UUID    lvm.VGUUID
	Size    lvm.Bytes         // of all its disks that are not missing
	Free    lvm.Bytes         // of those, not allocated
	Volumes int               // of this cluster
	Pools   []lvm.PoolMetrics // by name
	Hung    time.Duration     // for how long an LVM command has blocked the group; 0 if none does
}

// metricsPatience bounds how long Metrics waits for the disks.
const metricsPatience = 5 * time.Second

// Metrics reads the metrics. While the disks cannot be read, it returns no groups.
func (h *Host) Metrics() Metrics {
	m := Metrics{
		Volumes:     map[lvm.VolumeState]int{lvm.StateCreating: 0, lvm.StateZeroing: 0, lvm.StateReady: 0, lvm.StateDeleting: 0},
		WipeBacklog: h.wiper.Backlog(),
		Backlogs:    h.wiper.Backlogs(),
		InFlight:    h.operations.Count(),
		ReaderOff:   h.engine.Disks.Difference() != "",
	}
	ctx, cancel := context.WithTimeout(context.Background(), metricsPatience)
	defer cancel()
	s, err := h.engine.CachedState(ctx)
	if err != nil {
		h.log.Warn("cannot read the metrics of the volume groups", "error", err)
		return m
	}
	in := map[lvm.VGUUID]int{} // by the group's UUID
	for _, v := range h.volumes(s) {
		m.Volumes[v.State]++
		in[v.ID.VG]++
	}
	devices, err := h.engine.Devices()
	if err != nil {
		h.log.Warn("cannot read the metrics of the thin pools", "error", err)
	}
	paths := health.PathsOf(devices)
	for _, g := range s.Groups {
		gm := GroupMetrics{Name: g.Name, UUID: g.UUID, Volumes: in[g.UUID]}
		for _, pv := range g.PVs {
			if !pv.Missing {
				gm.Size += g.Bytes(pv.Extents)
			}
		}
		gm.Free = g.Bytes(g.FreeExtents())
		gm.Hung, _ = h.engine.Locks.BlockedFor(g.UUID)
		gm.Pools = h.health.PoolsOf(g, paths, h.pools.ExtensionsOf)
		m.Groups = append(m.Groups, gm)
	}
	return m
}
