package host

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// Adopt makes a logical volume of an admin a managed volume: one commit adds the driver's tags and changes nothing else. name
// is what the CO calls the volume, claim is "namespace/name" or empty. A managed volume is returned as it is. On an error the
// driver has changed nothing. KindNotFound: the volume does not exist, or it is being created or removed. KindConflict: it is
// part of another volume, no class has its layout, or it belongs to another cluster. KindInUse: it is open, or other volumes
// depend on it. KindInsufficientCapacity: the group's metadata area is nearly full.
func (h *Host) Adopt(ctx context.Context, group lvm.VGName, lv, name, claim string) (lvm.Volume, error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return lvm.Volume{}, err
	}
	g, err := groupNamed(s, group)
	if err != nil {
		return lvm.Volume{}, err
	}
	s, unlock, err := h.engine.Locked(ctx, g.UUID, "adopting volume "+lv, h.engine.ReadState)
	if err != nil {
		return lvm.Volume{}, err
	}
	defer unlock()
	if g, err = s.FindGroup(g.UUID); err != nil {
		return lvm.Volume{}, err
	}
	v, marked, err := h.adoptableLV(ctx, g, lv)
	if err != nil || marked {
		return v, err
	}
	v.Name, v.Claim, v.Cluster, v.State = name, claim, h.engine.Config.Cluster, lvm.StateReady
	if err := alloc.CheckMetadata(g, lvm.Bytes(len(strings.Join(lvm.VolumeTags(v), "")))); err != nil {
		return lvm.Volume{}, err
	}
	t, err := lvmcmd.TargetOf(g.Name, lv)
	if err != nil {
		return lvm.Volume{}, err
	}
	done, err := h.engine.Commit(ctx, engine.Change{Group: g, Steps: []lvmcmd.Step{{Argv: adoptArgs(t, g, v)}}})
	if err != nil {
		return lvm.Volume{}, err
	}
	g, _, now, err := done.State.FindVolume(v.ID)
	if err != nil || now.UUID != v.UUID || now.Name != name {
		return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "cannot tag %s as managed: %w", t, done.Cause())
	}
	return now, h.engine.Flush(g)
}

// groupNamed finds a group by its name.
func groupNamed(s lvm.State, name lvm.VGName) (lvm.Group, error) {
	var found []lvm.Group
	for _, g := range s.Groups {
		if g.Name == name {
			found = append(found, g)
		}
	}
	switch {
	case len(found) == 0:
		return lvm.Group{}, lvm.Errorf(lvm.KindNotFound, "this node has no volume group %s", name)
	case len(found) > 1:
		return lvm.Group{}, lvm.Errorf(lvm.KindConflict, "this node has %d volume groups %s: rename one (vgrename UUID NAME)", len(found), name)
	}
	return found[0], nil
}

// adoptableLV returns the volume that a logical volume would become. marked is true if it is a managed volume already.
func (h *Host) adoptableLV(ctx context.Context, g lvm.Group, name string) (v lvm.Volume, marked bool, err error) {
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == name && !lv.Hidden })
	if i < 0 {
		return lvm.Volume{}, false, g.AbsentError("volume group %s has no volume %s", g.Name, name)
	}
	lv := g.LVs[i]
	if err := lv.CheckTags(); err != nil {
		return lvm.Volume{}, false, err
	}
	v, ours := lv.AsVolume()
	if ours && v.Cluster != h.engine.Config.Cluster {
		return lvm.Volume{}, false, lvm.Errorf(lvm.KindNotManaged, "%s/%s belongs to the cluster %q, and this one is %q", g.Name, name, v.Cluster, h.engine.Config.Cluster)
	}
	if ours && v.State != lvm.StateReady {
		return lvm.Volume{}, false, engine.NotReady(g, v)
	}
	if ours {
		return v, true, nil
	}
	if g.Problem != "" {
		return lvm.Volume{}, false, lvm.Errorf(lvm.KindConflict, "volume group %s is unusable: %s", g.Name, g.Problem)
	}
	if err := lvm.CheckNoNewMissingPV(g); err != nil {
		return lvm.Volume{}, false, err
	}
	if v, err = adoptable(g, lv); err != nil {
		return lvm.Volume{}, false, err
	}
	return v, false, h.engine.CheckUnused(ctx, g, lv, v, "adopted")
}

// adoptable returns the volume that an unmanaged logical volume would become.
func adoptable(g lvm.Group, lv lvm.LV) (lvm.Volume, error) {
	refuse := func(why string) (lvm.Volume, error) {
		return lvm.Volume{}, lvm.Errorf(lvm.KindConflict, "%s/%s cannot be adopted: %s", g.Name, lv.Name, why)
	}
	id := lvm.ID{VG: g.UUID, LV: lv.Name}
	if _, err := lvm.ParseID(id.String()); err != nil || id.IsSnapshot() || lvm.ReservedNames.MatchString(lv.Name) {
		return refuse("the driver or LVM uses such names for something else; rename it (lvrename)")
	}
	if lv.Managed != nil || lv.Thin != nil || lv.Pending {
		return refuse("it is a thin pool or the driver's own, or its creation is incomplete")
	}
	if i := slices.IndexFunc(g.LVs, func(o lvm.LV) bool { return !o.Hidden && slices.Contains(o.UsedBy, lv.Name) }); i >= 0 && lv.Pool == "" {
		return refuse(fmt.Sprintf("it is a snapshot of %s that fills as either changes, and then loses its data: copy it to a new volume", g.LVs[i].Name))
	}
	class, err := layoutOf(g, lv)
	if err != nil {
		return refuse(err.Error())
	}
	class.Group = string(g.Name)
	if class, err = lvm.CheckClass(class); err != nil {
		return refuse(err.Error())
	}
	return lvm.Volume{ID: id, UUID: lv.UUID, Group: g.Name, Class: class, State: lvm.StateReady, Size: lvm.Bytes(lv.Extents) * g.ExtentSize}, nil
}

// layoutOf reads a volume's layout from its segments.
func layoutOf(g lvm.Group, lv lvm.LV) (lvm.Class, error) {
	first := lv.Segments[0]
	for _, s := range lv.Segments {
		if s.Type != first.Type || len(s.Areas) != len(first.Areas) || s.StripeSize != first.StripeSize {
			return lvm.Class{}, fmt.Errorf("its segments have different layouts")
		}
	}
	legs := len(first.Areas)
	kind, _, _ := strings.Cut(first.Type, "_") // raid5_ls, ...
	switch kind {
	case "linear":
		return lvm.Class{Layout: lvm.LayoutLinear}, nil
	case "striped":
		return lvm.Class{Layout: lvm.LayoutStriped, Stripes: legs, StripeSize: first.StripeSize}, nil
	case "raid1":
		return lvm.Class{Layout: lvm.LayoutRAID1, Mirrors: legs - 1}, nil
	case "raid5":
		return lvm.Class{Layout: lvm.LayoutRAID5, Stripes: legs - 1, StripeSize: first.StripeSize}, nil
	case "raid6":
		return lvm.Class{Layout: lvm.LayoutRAID6, Stripes: legs - 2, StripeSize: first.StripeSize}, nil
	case "raid10":
		return lvm.Class{Layout: lvm.LayoutRAID10, Stripes: legs / 2, Mirrors: 1, StripeSize: first.StripeSize}, nil
	case "thin":
		i := slices.IndexFunc(g.LVs, func(pool lvm.LV) bool { return pool.Name == lv.Pool })
		if i < 0 || g.LVs[i].Thin == nil || !g.LVs[i].Thin.Zero {
			return lvm.Class{}, fmt.Errorf("its thin pool does not zero new blocks (lvchange --zero y)")
		}
		return lvm.Class{Layout: lvm.LayoutThin, Pool: lv.Pool}, nil
	}
	return lvm.Class{}, fmt.Errorf("no storage class has its layout, %s", first.Type)
}

// adoptArgs adds a volume's tags in one commit, provided that the volume and its group have not changed since the driver read
// them.
func adoptArgs(t lvmcmd.Target, g lvm.Group, v lvm.Volume) []string {
	args := append(lvmcmd.OnDevices("lvchange", g), "-S", lvmcmd.UnchangedSelection(g)+" && lv_uuid="+v.UUID)
	return append(append(args, lvmcmd.AddTags(lvm.VolumeTags(v))...), "--", t.String())
}
