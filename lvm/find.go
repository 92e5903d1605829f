package lvm

import (
	"errors"
	"slices"
	"strings"
)

// FindGroup finds a volume group by its UUID. KindNotLocal: it is not on this node.
func (s State) FindGroup(uuid VGUUID) (Group, error) {
	for _, g := range s.Groups {
		if g.UUID == uuid {
			return g, nil
		}
	}
	unread := ""
	if len(s.UnreadDevices) > 0 {
		unread = " (" + strings.Join(s.UnreadDevices, "; ") + ")"
	}
	return Group{}, Errorf(KindNotLocal, "volume group %s is not on this node%s", uuid, unread)
}

// FindVolume finds a volume, whatever its state tag. KindNotLocal: its volume group is not on this node; KindNotManaged: the LV
// is not a managed volume; KindNotFound: the volume group lacks it; KindBusy, KindConflict: as LocateLV.
func (s State) FindVolume(id ID) (Group, LV, Volume, error) {
	group, err := s.FindGroup(id.VG)
	if err != nil {
		return Group{}, LV{}, Volume{}, Errorf(KindNotLocal, "volume %s: %w", id, err)
	}
	lv, err := group.LocateLV(id, "volume")
	if err != nil {
		return group, LV{}, Volume{}, err
	}
	v, is := lv.AsVolume()
	if err = lv.CheckTags(); err == nil && !is {
		err = Errorf(KindNotManaged, "%s/%s is not a managed volume, so the driver ignores it", group.Name, lv.Name)
	}
	return group, lv, v, err
}

// FindSnapshot finds a snapshot, whatever its state tag. KindNotLocal: its volume group is not on this node, or the LV is not a
// managed snapshot; KindNotFound: the volume group lacks it.
func (s State) FindSnapshot(id ID) (Group, Snapshot, error) {
	g, err := s.FindGroup(id.VG)
	if err != nil {
		return Group{}, Snapshot{}, Errorf(KindNotLocal, "snapshot %s: %w", id, err)
	}
	lv, err := g.LocateLV(id, "snapshot")
	if err != nil {
		return g, Snapshot{}, err
	}
	sn, is := lv.AsSnapshot()
	if err = lv.CheckTags(); err == nil && !is {
		err = Errorf(KindNotManaged, "%s/%s is not a managed snapshot, so the driver ignores it", g.Name, id.LV)
	}
	return g, sn, err
}

// FindLV finds an LV by its name in a normalized group; nil if there is none.
func (g *Group) FindLV(name string) *LV {
	i, found := slices.BinarySearchFunc(g.LVs, name, func(lv LV, name string) int { return strings.Compare(lv.Name, name) })
	if !found {
		return nil
	}
	return &g.LVs[i]
}

// LVByUUID finds an LV by its own UUID; nil if there is none.
func (g *Group) LVByUUID(uuid string) *LV {
	for i := range g.LVs {
		if g.LVs[i].UUID == uuid {
			return &g.LVs[i]
		}
	}
	return nil
}

// After an admin renames a managed volume (lvrename), its handle leads to no logical volume. The driver must not report it as
// absent: its deletion would succeed with the data in place, and a retry would create a second volume. So the volume's tags
// record the name in its handle. While the two names differ, the driver refuses every request for the volume. It refuses
// deletion too: the admin may have renamed the volume to keep it.

// HandleName returns the name in the handle of a managed volume or snapshot, or the LV's own name for any other.
func (lv LV) HandleName() string {
	switch m := lv.Managed; {
	case m != nil && m.Volume != nil:
		return m.Volume.ID.LV
	case m != nil && m.Snapshot != nil:
		return m.Snapshot.ID.LV
	}
	return lv.Name
}

// ErrThick is in the error of each refused snapshot or clone of a volume that is not thin.
var ErrThick = errors.New("only thin volumes have snapshots and clones: use a StorageClass with the parameter layout: thin for volumes that need them (docs/howto/snapshots.md)")

// CheckCopies returns an error (KindInvalid, ErrThick) if a volume, which lv is, has no snapshots and clones.
func (v Volume) CheckCopies(lv LV) error {
	if v.Class.Layout == LayoutThin && lv.Type == string(LayoutThin) {
		return nil
	}
	return Errorf(KindInvalid, "%s/%s has the layout %s, and %w", v.Group, lv.Name, v.Class.Layout, ErrThick)
}

// LocateLV finds the logical volume of a handle. KindNotFound, KindBusy: as AbsentError; KindConflict: it was renamed.
func (g Group) LocateLV(id ID, what string) (LV, error) {
	i := slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Name == id.LV })
	if i >= 0 && g.LVs[i].HandleName() == id.LV {
		return g.LVs[i], nil
	}
	for _, lv := range g.LVs {
		if lv.HandleName() == id.LV {
			return lv, Errorf(KindConflict, "%s %s was renamed to %s/%s: rename it back (lvrename %s %s %s), and the request succeeds; to protect it from deletion, remove its tags that begin with %s (lvchange --deltag)",
				what, id, g.Name, lv.Name, g.Name, lv.Name, id.LV, TagPrefix)
		}
	}
	if i >= 0 {
		lv := g.LVs[i]
		return lv, Errorf(KindConflict, "%s/%s is not the %s %s: by its tags it is %s and was renamed; rename it back (lvrename %s %s %s)",
			g.Name, lv.Name, what, id, lv.HandleName(), g.Name, lv.Name, lv.HandleName())
	}
	return LV{}, g.AbsentError("volume group %s has no %s %s", g.Name, what, id.LV)
}

// FindRenamed returns the LV of a volume or snapshot that was created under this name and now has another one; nil if there is
// none.
func (g Group) FindRenamed(name, lv, cluster string) *LV {
	for i := range g.LVs {
		if m := g.LVs[i].Managed; m != nil && m.Name == name && m.Cluster == cluster && g.LVs[i].Name != lv {
			return &g.LVs[i]
		}
	}
	return nil
}
