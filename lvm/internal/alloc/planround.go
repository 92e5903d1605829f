package alloc

import (
	"github.com/nodelvm/nodelvm/lvm"
)

// RoundPlacement is the action for one lvm.RoundSpec: Ready, Leftover or Round is set.
type RoundPlacement struct {
	Ready    *lvm.Round  // it exists: no action
	Leftover *lvm.Round  // an earlier attempt that never became ready: remove it, then plan again
	Round    lvm.Round   // to create; without UUID and Created, which LVM assigns
	Group    lvm.Group   // of Round
	Pool     *PoolGrowth // the pool's change before
	Source   lvm.Volume
}

// PlanRound decides the action for a round of a volume whose move is noted (lvm.Volume.Record). KindInvalid: the volume is not thin, or it is a
// read-only copy; KindConflict: its state allows no round; KindInsufficientCapacity: its pool can provision no more. The rest is as for FindVolume.
func PlanRound(s lvm.State, cluster string, spec lvm.RoundSpec) (RoundPlacement, error) {
	if err := lvm.CheckMove(spec.Move); err != nil {
		return RoundPlacement{}, err
	}
	g, lv, v, err := s.FindVolume(spec.Source)
	refuse := func(kind lvm.Kind, format string, args ...any) (RoundPlacement, error) {
		return RoundPlacement{}, lvm.Errorf(kind, "volume %s/%s cannot be copied while pods use it: "+format, append([]any{g.Name, spec.Source.LV}, args...)...)
	}
	switch {
	case err != nil:
		return RoundPlacement{}, err
	case v.Cluster != cluster:
		return refuse(lvm.KindNotManaged, "it belongs to the cluster %q", v.Cluster)
	case v.UUID != spec.SourceUUID:
		return refuse(lvm.KindNotFound, "it was removed and created again")
	case v.State != lvm.StateReady || v.Record == "":
		return refuse(lvm.KindConflict, "its state is %q, or no move of it is noted", v.State)
	case v.Class.Layout != lvm.LayoutThin || lv.Type != string(lvm.LayoutThin):
		return refuse(lvm.KindInvalid, "its layout is %s, and only thin volumes can", v.Class.Layout)
	case v.Access.ReadOnly():
		return refuse(lvm.KindInvalid, "it is %s", v.Access.Description())
	}
	if found := g.FindLV(lvm.RoundName(spec.Move)); found != nil {
		r, is := found.AsRound()
		switch {
		case !is || r.RoundSpec != spec || r.Cluster != cluster:
			return refuse(lvm.KindExists, "%s/%s exists and is something else: rename or remove it", g.Name, found.Name)
		case r.State == lvm.StateCreating:
			return RoundPlacement{Leftover: &r}, nil
		}
		return RoundPlacement{Ready: &r}, nil
	}
	if err := CheckAllocatable(s, g, v.Class); err != nil {
		return refuse(lvm.KindOf(err), "%w", err)
	}
	p, err := PoolOf(g, v.Class)
	if err != nil {
		return refuse(lvm.KindOf(err), "%w", err)
	}
	growth, err := p.Growth(lv.Extents, 0, v.Class, v.Cluster)
	if err != nil {
		return refuse(lvm.KindOf(err), "%w; the snapshot that this needs counts as much as the volume, %s", err, v.Size)
	}
	return RoundPlacement{Group: g, Pool: growth, Source: v, Round: lvm.Round{
		ID: lvm.ID{VG: g.UUID, LV: lvm.RoundName(spec.Move)}, Cluster: cluster, Group: g.Name, Pool: lv.Pool, State: lvm.StateCreating, Size: g.Bytes(lv.Extents), RoundSpec: spec,
	}}, nil
}

// newRoundUse is how full a pool may be, in percent, when a round is created in it: what pods write while the round exists needs new blocks.
const newRoundUse = 80

// CheckRoundRoom returns an error (lvm.KindInsufficientCapacity) if the kernel's status of a pool leaves no room for a round.
func CheckRoundRoom(g lvm.Group, pool string, s lvm.PoolStatus) error {
	switch {
	case s.IsFailed():
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the thin pool %s/%s takes no writes: %s", g.Name, pool, s.FailureReason())
	case lvm.IsAbove(s.DataUsed, s.DataTotal, newRoundUse), lvm.IsAbove(s.MetadataUsed, s.MetadataTotal, newRoundUse):
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the thin pool %s/%s is too full: %s of its data and %s of its metadata are in use, and a snapshot for a move needs both below %d %%: extend it, or delete volumes or snapshots in it",
			g.Name, pool, lvm.Percent(s.DataUsed, s.DataTotal), lvm.Percent(s.MetadataUsed, s.MetadataTotal), newRoundUse)
	}
	return nil
}

// roundsUse is how full a pool may be, in percent, while rounds exist in it.
const roundsUse = 90

// CheckRoundsFit returns an error (lvm.KindInsufficientCapacity) if a pool has become too full for the rounds in it.
func CheckRoundsFit(g lvm.Group, pool string, s lvm.PoolStatus) error {
	if s.IsFailed() || lvm.IsAbove(s.DataUsed, s.DataTotal, roundsUse) || lvm.IsAbove(s.MetadataUsed, s.MetadataTotal, roundsUse) {
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the thin pool %s/%s has become too full for the snapshots of a move: %s of its data and %s of its metadata are in use, and at most %d %% may be",
			g.Name, pool, lvm.Percent(s.DataUsed, s.DataTotal), lvm.Percent(s.MetadataUsed, s.MetadataTotal), roundsUse)
	}
	return nil
}
