package lvm

import "slices"

// Parts lists an LV and the LVs that it is made of.
func Parts(g Group, lv LV) []LV {
	all := []LV{lv}
	add := func(name string) {
		if i := slices.IndexFunc(g.LVs, func(other LV) bool { return name != "" && other.Name == name }); i >= 0 {
			all = append(all, Parts(g, g.LVs[i])...)
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

// Below lists an LV, its pool, and all that they are made of: a suspended device down there stops it as well.
func Below(g Group, lv LV) []LV {
	all := Parts(g, lv)
	for _, pool := range g.LVs {
		if pool.Name == lv.Pool {
			all = append(all, Parts(g, pool)...)
		}
	}
	return all
}

// PartsOf is parts by name; nil if there is no such LV.
func (g Group) PartsOf(name string) []LV {
	for _, lv := range g.LVs {
		if name != "" && lv.Name == name {
			return Parts(g, lv)
		}
	}
	return nil
}

// MaxLayers is far over what LVM stacks: a thin volume, its pool, a RAID, an image with integrity.
const MaxLayers = 12

// DirectParts calls yield with the names of the LVs that this one is made of.
func (lv *LV) DirectParts(yield func(name string) bool) {
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

// CutOff tells whether the lvcreate that made a thin volume was cut off, so that it was never answered: LVM drops its message
// to the pool before that command ends.
func (g Group) CutOff(lv LV) bool {
	pool := g.Named(lv.Pool)
	return lv.Pool != "" && pool != nil && pool.Thin != nil && slices.Contains(pool.Thin.Messages, CreateMessage+lv.Name)
}
