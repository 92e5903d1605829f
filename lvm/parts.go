package lvm

import "slices"

// Components returns an LV and all LVs below it.
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

// ComponentsAndPool returns an LV, its pool, and all LVs below both: if one of them is suspended, the LV's I/O stops.
func ComponentsAndPool(g Group, lv LV) []LV {
	all := Components(g, lv)
	for _, pool := range g.LVs {
		if pool.Name == lv.Pool {
			all = append(all, Components(g, pool)...)
		}
	}
	return all
}

// PVsBelow returns the UUIDs of the physical volumes that an LV and its pool are on.
func PVsBelow(g Group, lv LV) map[string]bool {
	below := map[string]bool{}
	for _, part := range ComponentsAndPool(g, lv) {
		for _, seg := range part.Segments {
			for _, area := range slices.Concat(seg.Areas, seg.Metadata) {
				if area.PV != "" {
					below[area.PV] = true
				}
			}
		}
	}
	return below
}

// ComponentsByName returns the components of the named LV; nil if there is no such LV.
func (g Group) ComponentsByName(name string) []LV {
	for _, lv := range g.LVs {
		if name != "" && lv.Name == name {
			return Components(g, lv)
		}
	}
	return nil
}

// MaxLayers is far above what LVM stacks: a thin volume, its pool, a RAID, an image with integrity.
const MaxLayers = 12

// EachComponent calls yield with the names of the LVs directly below this one.
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

// HasPendingCreate reports whether a killed lvcreate left this thin volume. Then the driver has not answered a request with it: the
// pool still has the message, which LVM drops before lvcreate ends.
func (g Group) HasPendingCreate(lv LV) bool {
	pool := g.FindLV(lv.Pool)
	return lv.Pool != "" && pool != nil && pool.Thin != nil && slices.Contains(pool.Thin.Messages, CreateMessage+lv.Name)
}
