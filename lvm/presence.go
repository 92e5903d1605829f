package lvm

import (
	"context"
	"errors"
	"slices"
)

// Presence is what a node knows of the volume of one name, whatever a request says of it.
type Presence struct {
	Volume   *Volume // in whatever group, creating or ready; nil: no group that was read has it, or it is deleted
	Made     bool    // it lacks nothing: an earlier request may have been answered with it
	UnderWay bool    // an operation for it is under way
	Unsure   error   // why it may be there although Volume is nil: a group lacks a disk, or a device was not read
}

// Presence finds the volume that a request of this name made. It starts no process as long as the disks can be read
// directly. KindBusy: the disks cannot be read.
func (h *Host) Presence(ctx context.Context, name string) (Presence, error) {
	underWay := h.flights.has(lvName(name)) // asked first: what ends meanwhile shows on the disks
	s, err := h.look(ctx)
	if err != nil {
		return Presence{}, Errorf(KindBusy, "whether volume %q is there cannot be told: %w", name, err)
	}
	p := presence(s, h.cfg.Cluster, name)
	p.UnderWay = underWay
	return p, nil
}

func presence(s State, cluster, name string) Presence {
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			v, ours, err := volumeOf(g, lv)
			if err == nil && ours && v.Name == name && v.Cluster == cluster && v.State != StateDeleting {
				return Presence{Volume: &v, Made: v.State == StateReady || complete(g, lv, v)}
			}
		}
	}
	return Presence{Unsure: s.unproven()}
}

// SnapshotPresence is what a node knows of the snapshot of one name, whatever a request says of it; as Presence.
type SnapshotPresence struct {
	Snapshot *Snapshot
	UnderWay bool
	Unsure   error
}

// SnapshotPresence does for the snapshot of a name what Presence does for a volume.
func (h *Host) SnapshotPresence(ctx context.Context, name string) (SnapshotPresence, error) {
	underWay := h.flights.has(snapshotName(name))
	s, err := h.look(ctx)
	if err != nil {
		return SnapshotPresence{}, Errorf(KindBusy, "whether snapshot %q is there cannot be told: %w", name, err)
	}
	p := snapshotPresence(s, h.cfg.Cluster, name)
	p.UnderWay = underWay
	return p, nil
}

func snapshotPresence(s State, cluster, name string) SnapshotPresence {
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			sn, ours, err := snapshotOf(g, lv)
			if err == nil && ours && sn.Name == name && sn.Cluster == cluster && sn.State != StateDeleting {
				return SnapshotPresence{Snapshot: &sn}
			}
		}
	}
	return SnapshotPresence{Unsure: s.unproven()}
}

// unproven says why there may be more than the state shows; nil: it shows all.
func (s State) unproven() error {
	for _, g := range s.Groups {
		if why := g.unproven(); why != "" {
			return Errorf(KindBusy, "volume group %s may hold more than can be read: %s", g.Name, why)
		}
	}
	if len(s.Unread) > 0 {
		return Errorf(KindBusy, "%s", s.Unread[0])
	}
	return nil
}

// KeepReserved keeps room for longer for those volumes that are still wanted here: of a volume's siblings, which
// CreateTogether kept room for, those whose request is still expected. What is not wanted loses its room seconds after the last request.
func (h *Host) KeepReserved(wanted func(Volume) bool) { h.reserved.renew(wanted) }

// Serves tells whether a class with this group, a name or an @tag, stands for the volume group of the ID.
func (h *Host) Serves(ctx context.Context, group string, id ID) (bool, error) {
	s, err := h.look(ctx)
	if err != nil {
		return false, err
	}
	groups, err := groupsOf(s, Class{Group: group})
	if errors.Is(err, errNoGroup) {
		return false, nil
	}
	return slices.ContainsFunc(groups, func(g Group) bool { return g.UUID == id.VG }), err
}
