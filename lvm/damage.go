package lvm

import "strings"

// Damage describes the effect of missing physical volumes on an LV.
type Damage struct {
	Lost bool // some of the data is on missing physical volumes
	Legs int  // RAID: number of missing legs of the RAID below this LV that lacks most
	Of   int
}

// DamageOf returns the damage of an LV and of all LVs below it.
func (g Group) DamageOf(lv LV, missing map[string]bool, layers int) Damage {
	var d Damage
	if layers > MaxLayers {
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
			d.Lost = d.Lost || gone && !raid
		}
		if raid {
			d.worse(RaidDamage(seg.Type, legs))
		}
	}
	parts := []string{lv.Pool}
	if lv.Thin != nil {
		parts = append(parts, lv.Thin.Data, lv.Thin.Metadata)
	}
	for _, name := range parts {
		if part := g.FindLV(name); name != "" && part != nil {
			d.worse(g.DamageOf(*part, missing, layers+1))
		}
	}
	return d
}

// areaLost reports whether a leg is missing, and adds to d the missing legs of the RAIDs below it.
func (g Group) areaLost(a Area, missing map[string]bool, layers int, d *Damage) bool {
	if a.LV == "" {
		return missing[a.PV]
	}
	part := g.FindLV(a.LV)
	if part == nil {
		return true
	}
	below := g.DamageOf(*part, missing, layers+1)
	if below.Legs > 0 {
		d.worse(Damage{Legs: below.Legs, Of: below.Of})
	}
	return below.Lost
}

func (d *Damage) worse(other Damage) {
	d.Lost = d.Lost || other.Lost
	if other.Legs > d.Legs {
		d.Legs, d.Of = other.Legs, other.Of
	}
}

// RaidDamage returns the damage of a RAID without the given legs (lvmraid(7)): raid1 needs one leg, raid10 one leg of each pair.
func RaidDamage(kind string, gone []bool) Damage {
	d := Damage{Of: len(gone)}
	pair := false
	for i, g := range gone {
		if g {
			d.Legs++
			pair = pair || i%2 == 1 && gone[i-1]
		}
	}
	switch {
	case strings.HasPrefix(kind, "raid10"):
		d.Lost = pair
	case kind == "raid1":
		d.Lost = d.Legs > 0 && d.Legs == d.Of
	case strings.HasPrefix(kind, "raid6"):
		d.Lost = d.Legs > 2
	case strings.HasPrefix(kind, "raid4"), strings.HasPrefix(kind, "raid5"):
		d.Lost = d.Legs > 1
	default: // raid0
		d.Lost = d.Legs > 0
	}
	return d
}
