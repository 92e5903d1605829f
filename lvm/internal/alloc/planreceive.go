package alloc

import (
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// Reception is the action for one lvm.Incoming: exactly one field is set.
type Reception struct {
	Have     *lvm.Volume // it exists for this move: no action
	Begin    *lvm.Volume // it holds what another round or move copied: these Move, Copied and Base are to be noted before this copy begins
	Leftover *lvm.Volume // a killed lvcreate left it incomplete: remove it, then plan again.
	Former   *lvm.Volume // Another move's copy, which does not fit: delete it, as a user's volume, then plan again.
	Create   *Allocation
}

// PlanReceive decides how a volume of another node gets its logical volume here. KindExists: another volume has its name, or a complete copy of
// another move, which may be the user's only one; the rest is as for Plan.
func PlanReceive(s lvm.State, cluster string, in lvm.Incoming) (Reception, error) {
	spec, err := lvm.CheckSpec(in.Spec)
	if err != nil {
		return Reception{}, err
	}
	if err := lvm.CheckMove(in.Move); err != nil {
		return Reception{}, err
	}
	switch {
	case spec.Required == 0 || spec.Limit != 0:
		return Reception{}, lvm.Errorf(lvm.KindInvalid, "volume %q cannot be copied to this node: its size is not known", spec.Name)
	case spec.Access != lvm.AccessWritable:
		return Reception{}, lvm.Errorf(lvm.KindInvalid, "volume %q cannot be copied to this node: it would be %s", spec.Name, spec.Access.Description())
	case slices.ContainsFunc(s.Groups, func(g lvm.Group) bool { return g.UUID == spec.Source.VG }):
		return Reception{}, lvm.Errorf(lvm.KindInvalid, "volume %q cannot be copied to this node: the volume group of its source %s is here", spec.Name, spec.Source)
	}
	if mark := in.FormatMark; mark < 0 || mark%lvm.FormatMarkSize != 0 || mark > spec.Class.DeviceSize(spec.Required)-lvm.FormatMarkSize {
		return Reception{}, lvm.Errorf(lvm.KindInvalid, "volume %q cannot move to this node: its format mark cannot be at %d of %d bytes", spec.Name, mark, spec.Required)
	}
	groups, err := GroupsOf(s, spec.Class)
	if err != nil {
		return Reception{}, err
	}
	found, err := find(s, cluster, groups, spec)
	switch {
	case err != nil:
		return Reception{}, err
	case found != nil:
		return receiveInto(s, *found, in, Compatible(*found, spec, groups))
	}
	whole := spec
	whole.Source = lvm.ID{} // nothing is shared with it
	c, err := allocate(s, cluster, groups, whole)
	if err != nil {
		return Reception{}, err
	}
	c.Volume.Source = spec.Source
	// The copy writes every byte of the volume, so no extents need zeroes before.
	c.Volume.State, c.Volume.Move, c.Volume.FormatMark = lvm.StateReceiving, in.Move, in.FormatMark
	return Reception{Create: c}, nil
}

func receiveInto(s lvm.State, v lvm.Volume, in lvm.Incoming, incompatible error) (Reception, error) {
	g, lv, _, err := s.FindVolume(v.ID)
	complete := err == nil && !lv.Pending && !g.HasPendingCreate(lv) && strings.HasPrefix(lv.Type, string(v.Class.Layout))
	switch {
	case err != nil:
		return Reception{}, err
	case v.State == lvm.StateReceiving && !complete:
		return Reception{Leftover: &v}, nil
	case v.State == lvm.StateReceiving && incompatible != nil && v.Move != in.Move:
		return Reception{Former: &v}, nil
	case incompatible != nil:
		return Reception{}, incompatible
	case v.Move == in.Move && (v.State == lvm.StateReceived || v.State == lvm.StateReady):
		return Reception{Have: &v}, nil
	case v.State == lvm.StateReceiving:
		if next := beginCopy(v, in.Move, in.Since); next != v {
			return Reception{Begin: &next}, nil
		}
		return Reception{Have: &v}, nil
	case v.State == lvm.StateReady:
		return Reception{}, lvm.Errorf(lvm.KindExists, "volume %q cannot move to this node: %s/%s has its name, and pods can use it", in.Spec.Name, v.Group, v.ID.LV)
	case v.State == lvm.StateReceived:
		return Reception{}, lvm.Errorf(lvm.KindExists, "volume %q cannot move to this node: %s/%s is a complete copy from another move: discard that first", in.Spec.Name, v.Group, v.ID.LV)
	}
	return Reception{}, lvm.Errorf(lvm.KindExists, "volume %q cannot move to this node yet: %w; it must be removed first", in.Spec.Name, v.CheckNoMove("used"))
}

// beginCopy returns what a receiving volume's tags must say before the copy of this round or hold goes on. The copy is that of the changes since
// an earlier round only if the volume has that round completely, and nothing of a later one. Otherwise it is one of everything.
func beginCopy(v lvm.Volume, move, since string) lvm.Volume {
	switch {
	case v.Move == move && (v.Base == "" || v.Base == move || v.Base == since):
		return v // as it began, or complete
	case v.Move != move && since != "" && v.Base == since && v.Move == since:
		v.Move, v.Copied = move, 0
	default:
		v.Move, v.Copied, v.Base = move, 0, ""
	}
	return v
}

// ReceptionGroup returns the UUID of the volume group that a reception changes.
func ReceptionGroup(r Reception) lvm.VGUUID {
	for _, v := range []*lvm.Volume{r.Have, r.Begin, r.Leftover, r.Former} {
		if v != nil {
			return v.ID.VG
		}
	}
	return r.Create.Group.UUID
}
