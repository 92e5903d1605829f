package lvm

import "strings"

// damage is what missing physical volumes do to an LV.
type damage struct {
	lost bool // a part of the data is gone, as long as they are
	legs int  // RAID: legs that are not there; of the worst RAID that it is made of
	of   int
}

// damageTo looks down through everything that an LV is made of.
func (g Group) damageTo(lv LV, missing map[string]bool, layers int) damage {
	var d damage
	if layers > maxLayers {
		return d
	}
	raid := strings.HasPrefix(lv.Type, "raid")
	for _, seg := range lv.Segments {
		var legs []bool
		for i, a := range seg.Areas {
			gone := g.areaLost(a, missing, layers, &d)
			if i < len(seg.Metadata) {
				gone = g.areaLost(seg.Metadata[i], missing, layers, &d) || gone
			}
			legs = append(legs, gone)
			d.lost = d.lost || gone && !raid
		}
		if raid {
			d.worse(raidDamage(seg.Type, legs))
		}
	}
	parts := []string{lv.Pool}
	if lv.Thin != nil {
		parts = append(parts, lv.Thin.Data, lv.Thin.Metadata)
	}
	for _, name := range parts {
		if part := g.named(name); name != "" && part != nil {
			d.worse(g.damageTo(*part, missing, layers+1))
		}
	}
	return d
}

// areaLost tells whether a leg is gone. What its LV has lost without being gone counts in d.
func (g Group) areaLost(a Area, missing map[string]bool, layers int, d *damage) bool {
	if a.LV == "" {
		return missing[a.PV]
	}
	part := g.named(a.LV)
	if part == nil {
		return true
	}
	below := g.damageTo(*part, missing, layers+1)
	if below.legs > 0 {
		d.worse(damage{legs: below.legs, of: below.of})
	}
	return below.lost
}

func (d *damage) worse(other damage) {
	d.lost = d.lost || other.lost
	if other.legs > d.legs {
		d.legs, d.of = other.legs, other.of
	}
}

// raidDamage tells what a RAID without some of its legs has lost (lvmraid(7)): raid1 lives on one leg, raid10 on one of
// each pair of neighbours.
func raidDamage(kind string, gone []bool) damage {
	d := damage{of: len(gone)}
	pair := false
	for i, g := range gone {
		if g {
			d.legs++
			pair = pair || i%2 == 1 && gone[i-1]
		}
	}
	switch {
	case strings.HasPrefix(kind, "raid10"):
		d.lost = pair
	case kind == "raid1":
		d.lost = d.legs > 0 && d.legs == d.of
	case strings.HasPrefix(kind, "raid6"):
		d.lost = d.legs > 2
	case strings.HasPrefix(kind, "raid4"), strings.HasPrefix(kind, "raid5"):
		d.lost = d.legs > 1
	default: // raid0
		d.lost = d.legs > 0
	}
	return d
}
