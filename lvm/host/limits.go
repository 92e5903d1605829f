package host

import (
	"context"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// limiting identifies a SetLimits request among the operations in flight.
type limiting struct {
	id     lvm.ID
	uuid   string
	limits lvm.Limits
}

// SetLimits records the limits of a ready volume's I/O in one commit, and returns the volume. It takes no LVM process if the volume
// has these limits already. It changes no device or cgroup: its caller has them applied to the pods that use the volume. An empty uuid
// stands for any. KindNotFound, KindNotLocal: as Lookup; KindBusy: retry, perhaps after a disk has returned;
// KindInsufficientCapacity: the group's metadata area is nearly full.
func (h *Host) SetLimits(ctx context.Context, id lvm.ID, uuid string, limits lvm.Limits) (lvm.Volume, error) {
	return oplock.Do(ctx, &h.operations, id.LV, limiting{id, uuid, limits}, func(ctx context.Context) (lvm.Volume, error) {
		return h.setLimits(ctx, id, uuid, limits)
	})
}

func (h *Host) setLimits(ctx context.Context, id lvm.ID, uuid string, limits lvm.Limits) (lvm.Volume, error) {
	s, unlock, err := h.engine.Locked(ctx, id.VG, "changing the limits of volume "+id.LV, h.engine.ReadState)
	if err != nil {
		return lvm.Volume{}, err
	}
	defer unlock()
	g, lv, v, err := s.FindVolume(id)
	switch {
	case err != nil:
		return lvm.Volume{}, err
	case uuid != "" && v.UUID != uuid:
		return lvm.Volume{}, g.AbsentError("volume %s is not the one with the UUID %s", id, uuid)
	case v.State != lvm.StateReady:
		return lvm.Volume{}, engine.NotReady(g, v)
	case v.Limits == limits && v.LimitsProblem == "":
		return v, h.engine.Flush(g) // an earlier attempt may have ended between its commit and the flush
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil {
		return lvm.Volume{}, err
	}
	if err := alloc.CheckMetadata(g, lvm.Bytes(len(lvm.LimitsTag(limits))-len(strings.Join(lvm.LimitsTags(lv.Tags), "")))); err != nil {
		return lvm.Volume{}, err
	}
	t, err := lvmcmd.TargetOf(g.Name, lv.Name)
	if err != nil {
		return lvm.Volume{}, err
	}
	done, err := h.engine.Commit(ctx, engine.Change{Group: g, Steps: []lvmcmd.Step{{Argv: lvmcmd.LimitsArgs(t, g, lv, limits)}}})
	if err != nil {
		return lvm.Volume{}, err
	}
	g, _, now, err := h.engine.WithKnowledge(done.State).FindVolume(id)
	if err != nil {
		return lvm.Volume{}, err
	}
	if now.UUID != v.UUID || now.Limits != limits || now.LimitsProblem != "" {
		return lvm.Volume{}, lvm.Errorf(lvm.KindOf(done.Failure), "cannot record the I/O limits of volume %s: %w", t, done.Cause())
	}
	done.Warn(h.engine.Log, t.String())
	return now, h.engine.Flush(g)
}
