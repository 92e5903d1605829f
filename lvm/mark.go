package lvm

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Mark makes a volume of an admin's one of this driver's: it gets our tags in one commit, and nothing else of it changes.
// name is what the CO will call it, claim is "namespace/name" or empty. One that is marked already is answered as it is.
// KindNotFound: there is no such volume, or it is being made or removed; KindConflict: it is a part of something else, has a layout that no class has, or
// is another cluster's; KindInUse: it is open, or others are built on it. Nothing was changed then.
func (h *Host) Mark(ctx context.Context, group, lv, name, claim string) (Volume, error) {
	s, err := h.read(ctx)
	if err != nil {
		return Volume{}, err
	}
	g, err := groupNamed(s, group)
	if err != nil {
		return Volume{}, err
	}
	s, unlock, err := h.locked(ctx, g.UUID, "marking volume "+lv, h.read)
	if err != nil {
		return Volume{}, err
	}
	defer unlock()
	if g, err = s.group(g.UUID); err != nil {
		return Volume{}, err
	}
	v, marked, err := h.markable(ctx, g, lv)
	if err != nil || marked {
		return v, err
	}
	v.Name, v.Claim, v.Cluster, v.State = name, claim, h.cfg.Cluster, StateReady
	t, err := targetOf(g.Name, lv)
	if err != nil {
		return Volume{}, err
	}
	failure := h.run(ctx, g, []step{{markArgs(t, g, v)}})
	if s, err = h.readRaw(ctx); err != nil {
		return Volume{}, err
	}
	g, _, now, err := s.find(v.ID)
	if err != nil || now.UUID != v.UUID || now.Name != name {
		return Volume{}, Errorf(KindInternal, "%s could not be marked: %w", t, orNothing(failure))
	}
	return now, h.flush(g)
}

// groupNamed finds a group by its name.
func groupNamed(s State, name string) (Group, error) {
	var found []Group
	for _, g := range s.Groups {
		if g.Name == name {
			found = append(found, g)
		}
	}
	switch {
	case len(found) == 0:
		return Group{}, Errorf(KindNotFound, "there is no volume group %s on this node", name)
	case len(found) > 1:
		return Group{}, Errorf(KindConflict, "there are %d volume groups %s on this node: rename one (vgrename UUID NAME)", len(found), name)
	}
	return found[0], nil
}

// markable answers a logical volume as the volume that it would be. marked is true if it is one already.
func (h *Host) markable(ctx context.Context, g Group, name string) (v Volume, marked bool, err error) {
	i := slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Name == name && !lv.Hidden })
	if i < 0 {
		return Volume{}, false, g.absent("volume group %s has no volume %s", g.Name, name)
	}
	lv := g.LVs[i]
	v, ours, err := volumeOf(g, lv)
	if err != nil {
		return Volume{}, false, err
	}
	if ours && v.Cluster != h.cfg.Cluster {
		return Volume{}, false, Errorf(KindNotManaged, "%s/%s was made by the cluster %q, and this one is %q", g.Name, name, v.Cluster, h.cfg.Cluster)
	}
	if ours && v.State != StateReady {
		return Volume{}, false, notReady(g, v)
	}
	if ours {
		return v, true, nil
	}
	if g.Problem != "" {
		return Volume{}, false, Errorf(KindConflict, "nothing can be changed in volume group %s: %s", g.Name, g.Problem)
	}
	if err := undisturbed(g); err != nil {
		return Volume{}, false, err
	}
	if v, err = adoptable(g, lv); err != nil {
		return Volume{}, false, err
	}
	return v, false, h.unused(ctx, g, lv, v, "adopted")
}

// adoptable answers a logical volume without our tags as the volume that it would be.
func adoptable(g Group, lv LV) (Volume, error) {
	refuse := func(why string) (Volume, error) {
		return Volume{}, Errorf(KindConflict, "%s/%s cannot be adopted: %s", g.Name, lv.Name, why)
	}
	id := ID{VG: g.UUID, LV: lv.Name}
	if _, err := ParseID(id.String()); err != nil || id.IsSnapshot() || reservedNames.MatchString(lv.Name) {
		return refuse("its name could be taken for something else; rename it (lvrename)")
	}
	if lv.Thin != nil || lv.Pending {
		return refuse("it is a thin pool, or was never finished")
	}
	class, err := layoutOf(g, lv)
	if err != nil {
		return refuse(err.Error())
	}
	class.Group = g.Name
	if class, err = checkClass(class); err != nil {
		return refuse(err.Error())
	}
	return Volume{ID: id, UUID: lv.UUID, Group: g.Name, Class: class, State: StateReady, Size: Bytes(lv.Extents) * g.ExtentSize}, nil
}

// layoutOf reads a volume's layout from its segments.
func layoutOf(g Group, lv LV) (Class, error) {
	first := lv.Segments[0]
	for _, s := range lv.Segments {
		if s.Type != first.Type || len(s.Areas) != len(first.Areas) || s.StripeSize != first.StripeSize {
			return Class{}, fmt.Errorf("its parts have different layouts")
		}
	}
	legs := len(first.Areas)
	kind, _, _ := strings.Cut(first.Type, "_") // raid5_ls, ...
	switch kind {
	case "linear":
		return Class{Layout: LayoutLinear}, nil
	case "striped":
		return Class{Layout: LayoutStriped, Stripes: legs, StripeSize: first.StripeSize}, nil
	case "raid1":
		return Class{Layout: LayoutRAID1, Mirrors: legs - 1}, nil
	case "raid5":
		return Class{Layout: LayoutRAID5, Stripes: legs - 1, StripeSize: first.StripeSize}, nil
	case "raid6":
		return Class{Layout: LayoutRAID6, Stripes: legs - 2, StripeSize: first.StripeSize}, nil
	case "raid10":
		return Class{Layout: LayoutRAID10, Stripes: legs / 2, Mirrors: 1, StripeSize: first.StripeSize}, nil
	case "thin":
		i := slices.IndexFunc(g.LVs, func(pool LV) bool { return pool.Name == lv.Pool })
		if i < 0 || g.LVs[i].Thin == nil || !g.LVs[i].Thin.Zero {
			return Class{}, fmt.Errorf("its thin pool does not zero new blocks (lvchange --zero y)")
		}
		return Class{Layout: LayoutThin, Pool: lv.Pool}, nil
	}
	return Class{}, fmt.Errorf("no storage class has its layout, %s", first.Type)
}

// markArgs add a volume's tags in one commit, if it still is the one that was looked at.
func markArgs(t target, g Group, v Volume) []string {
	args := append(onDevices("lvchange", g), "-S", asSeen(g)+" && lv_uuid="+v.UUID)
	return append(append(args, addTags(tagsOf(v))...), "--", t.String())
}
