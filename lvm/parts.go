package lvm

import "slices"

// Components lists an LV and the LVs that it is made of.
func Components(g Group, lv LV) []LV {
	all := []LV{lv}
	add := func(name string) {
		if i := slices.IndexFunc(g.LVs, func(other LV) bool { return name != "" && other.Name == name }); i >= 0 {
			all = append(all, Components(g, g.LVs[i])...)
		}
	}
	for _, segment := range lv.Segments {
		for _, area := range slices.Concat(segment.Areas, segment.Metadata) {
			add(area.LV)
		}
	}
	if lv.Thin != nil {
		add(lv.Thin.Data)
		add(lv.Thin.Metadata)
	}
	return all
}

// ComponentsAndPool lists an LV, its pool, and all that they are made of: a suspended device down there stops it as well.
func ComponentsAndPool(g Group, lv LV) []LV {
	all := Components(g, lv)
	for _, pool := range g.LVs {
		if pool.Name == lv.Pool {
			all = append(all, Components(g, pool)...)
		}
	}
	return all
}

// ComponentsByName is parts by name; nil if there is no such LV.
func (g Group) ComponentsByName(name string) []LV {
	for _, lv := range g.LVs {
		if name != "" && lv.Name == name {
			return Components(g, lv)
		}
	}
	return nil
}

// MaxLayers is far over what LVM stacks: a thin volume, its pool, a RAID, an image with integrity.
const MaxLayers = 12

// EachComponent calls yield with the names of the LVs that this one is made of.
func (lv *LV) EachComponent(yield func(name string) bool) {
	for _, seg := range lv.Segments {
		for _, areas := range [][]Area{seg.Areas, seg.Metadata} {
			for _, a := range areas {
				if a.LV != "" && !yield(a.LV) {
					return
				}
			}
		}
	}
	names := []string{lv.Pool}
	if lv.Thin != nil {
		names = append(names, lv.Thin.Data, lv.Thin.Metadata)
	}
	for _, name := range names {
		if name != "" && !yield(name) {
			return
		}
	}
}

// HasPendingCreate tells whether the lvcreate that made a thin volume was cut off, so that it was never answered: LVM drops its message
// to the pool before that command ends.
func (g Group) HasPendingCreate(lv LV) bool {
	pool := g.FindLV(lv.Pool)
	return lv.Pool != "" && pool != nil && pool.Thin != nil && slices.Contains(pool.Thin.Messages, CreateMessage+lv.Name)
}
