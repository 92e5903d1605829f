package lvm

import (
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
