package lvmtest

import (
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// wanted is the volume that an lvcreate creates.
type wanted struct {
	name    string
	extents lvm.Extents
	tags    []string
}

func (n *Node) lvcreate(l line) *failure {
	if len(l.positional) == 0 || !l.has("-y") || l.values["-W"] == "y" && l.values["-Z"] != "y" {
		return &failure{exitArguments, "lvcreate: wrong arguments"}
	}
	w := wanted{name: l.values["-n"], tags: l.add}
	if !nameWord.MatchString(w.name) {
		return &failure{exitArguments, "lvcreate: wrong name"}
	}
	if n.lacks[targetOf(l.values["--type"])] != lvm.TargetPresent {
		return failed("%s: Required device-mapper target(s) not detected in your kernel.", l.values["--type"])
	}
	if l.has("-s") {
		return n.snapshot(l, w)
	}
	g, f := n.visible(l.positional[0], l)
	if f != nil {
		return f
	}
	if g.find(w.name) != nil {
		return failed("Logical Volume %q already exists in volume group %q", w.name, g.Name)
	}
	if l.values["--type"] == "thin" {
		return n.thin(g, l, w)
	}
	extents, err := l.count("-l", 0)
	if err != nil || extents < 1 {
		return &failure{exitArguments, "lvcreate: wrong size"}
	}
	w.extents = lvm.Extents(extents)
	from, f := g.room(l.positional[1:])
	if f != nil {
		return f
	}
	switch kind := l.values["--type"]; kind {
	case "", "linear":
		f = n.linear(g, l, w, from)
	case "striped":
		f = n.striped(g, l, w, from)
	case "raid1", "raid5", "raid6", "raid10":
		f = n.raid(g, l, w, from, kind)
	case "thin-pool":
		f = n.pool(g, l, w, from)
	default:
		f = &failure{exitArguments, "lvcreate: unknown segment type " + kind}
	}
	if f != nil {
		return f
	}
	g.commit()
	switch {
	case n.halved && g.find(w.name).Thin != nil:
		n.raise(g, w.name+"_tmeta", "-tmeta")
	case l.values["-a"] != "n" && !n.halved:
		n.activate(g, w.name)
	}
	return nil
}

func (n *Node) linear(g *group, l line, w wanted, from *room) *failure {
	if l.has("-i") || l.has("-m") || l.has("-I") {
		return &failure{exitArguments, "lvcreate: a linear volume has no stripes"}
	}
	segments, f := from.linear(w.extents)
	if f != nil {
		return f
	}
	g.add(lvm.LV{UUID: n.uuid(), Name: w.name, Tags: w.tags, Created: n.now(), Segments: segments})
	return nil
}

// stripes parses -i and -I. Like lvcreate it rounds an -l up to a multiple of the stripes.
func (l line) stripes(g *group, w *wanted, atLeast int64) (int, lvm.Bytes, *failure) {
	stripes, err := l.count("-i", 2)
	if err != nil || stripes < atLeast {
		return 0, 0, &failure{exitArguments, fmt.Sprintf("lvcreate: wrong number of stripes (at least %d)", atLeast)}
	}
	size, err := l.size("-I", 64*lvm.KiB)
	if err != nil || size < 4*lvm.KiB || size > g.ExtentSize || size&(size-1) != 0 {
		return 0, 0, &failure{exitArguments, fmt.Sprintf("lvcreate: invalid stripe size %d", size)}
	}
	w.extents = (w.extents + lvm.Extents(stripes) - 1) / lvm.Extents(stripes) * lvm.Extents(stripes)
	return int(stripes), size, nil
}

func (n *Node) striped(g *group, l line, w wanted, from *room) *failure {
	stripes, size, f := l.stripes(g, &w, 2)
	if f != nil {
		return f
	}
	areas, f := from.legs(stripes, w.extents/lvm.Extents(stripes))
	if f != nil {
		return f
	}
	g.add(lvm.LV{UUID: n.uuid(), Name: w.name, Tags: w.tags, Created: n.now(),
		Segments: []lvm.Segment{{Extents: w.extents, Type: "striped", StripeSize: size, Areas: areas}}})
	return nil
}

// shape returns the number of legs of a RAID type, and how many of them hold data.
func (l line) shape(kind string, g *group, w *wanted) (legs, data int, size lvm.Bytes, f *failure) {
	mirrors, err := l.count("-m", 1)
	if err != nil || kind == "raid10" && mirrors != 1 || (kind == "raid5" || kind == "raid6") && l.has("-m") || kind == "raid1" && l.has("-i") {
		return 0, 0, 0, &failure{exitArguments, "lvcreate: wrong mirrors or stripes for " + kind}
	}
	if kind == "raid1" {
		return int(mirrors) + 1, 1, 0, nil
	}
	atLeast := int64(2)
	if kind == "raid6" {
		atLeast = 3
	}
	data, size, f = l.stripes(g, w, atLeast)
	return map[string]int{"raid5": data + 1, "raid6": data + 2, "raid10": 2 * data}[kind], data, size, f
}

// raid adds a metadata LV and an image for each leg, the first right before the second on the leg's disk. As in LVM the
// metadata LVs have the volume's tags.
func (n *Node) raid(g *group, l line, w wanted, from *room, kind string) *failure {
	legs, data, stripe, f := l.shape(kind, g, &w)
	if f != nil {
		return f
	}
	region, err := l.size("--regionsize", 2*lvm.MiB)
	if err != nil {
		return &failure{exitArguments, err.Error()}
	}
	image := w.extents / lvm.Extents(data)
	meta := metadataExtents(image, region, g.ExtentSize)
	areas, f := from.legs(legs, meta+image)
	if f != nil {
		return f
	}
	top := lvm.Segment{Extents: w.extents, Type: kind, StripeSize: stripe, RegionSize: region}
	// A killed lvcreate leaves the metadata LVs visible, since it wipes them one by one before it hides them. A reader of the
	// disks takes the volume for pending then.

	for i, a := range areas {
		metaName, imageName := fmt.Sprintf("%s_rmeta_%d", w.name, i), fmt.Sprintf("%s_rimage_%d", w.name, i)
		g.add(lvm.LV{UUID: n.uuid(), Name: metaName, Tags: w.tags, Created: n.now(), Hidden: true,
			Segments: []lvm.Segment{{Extents: meta, Type: "linear", Areas: []lvm.Area{a}}}})
		a.Start += meta
		g.add(lvm.LV{UUID: n.uuid(), Name: imageName, Created: n.now(), Hidden: true,
			Segments: []lvm.Segment{{Extents: image, Type: "linear", Areas: []lvm.Area{a}}}})
		top.Metadata = append(top.Metadata, lvm.Area{LV: metaName})
		top.Areas = append(top.Areas, lvm.Area{LV: imageName})
	}
	g.add(lvm.LV{UUID: n.uuid(), Name: w.name, Tags: w.tags, Created: n.now(), Pending: n.halved, Segments: []lvm.Segment{top}})
	return nil
}

// metadataExtents is the size of a leg's metadata LV: a superblock of 8 KiB and a bitmap of one bit a region (lvm2,
// lib/metadata/lv_manip.c, raid_rmeta_extents).
func metadataExtents(image lvm.Extents, region, extent lvm.Bytes) lvm.Extents {
	bits := (lvm.Bytes(image)*extent + region - 1) / region
	bytes := 8*lvm.KiB + (bits+7)/8
	return lvm.Extents((bytes + extent - 1) / extent)
}

// lvextend extends a volume: -l is its new size.
func (n *Node) lvextend(l line) *failure {
	if len(l.positional) == 0 {
		return &failure{exitArguments, "lvextend: no volume named"}
	}
	g, lv, f := n.volume(l.positional[0], l)
	if f != nil {
		return f
	}
	want, err := l.count("-l", 0)
	grow := lvm.Extents(want) - lv.Extents
	switch {
	case err != nil || want == 0:
		return &failure{exitArguments, "lvextend: wrong size"}
	case grow == 0:
		return failed("New size (%d extents) matches existing size (%d extents).", want, lv.Extents)
	case grow < 0:
		return failed("New size given (%d extents) not larger than existing size (%d extents)", want, lv.Extents)
	}
	from, f := g.room(l.positional[1:])
	if f == nil {
		f = n.grow(g, lv, grow, from)
	}
	if f != nil {
		return f
	}
	g.commit()
	if d := n.device(n.path(g, lv.UUID)); d != nil && n.halved {
		d.suspended = true
	}
	return nil
}

// grow adds extents to a volume, in its layout.
func (n *Node) grow(g *group, lv *lvm.LV, grow lvm.Extents, from *room) *failure {
	switch last := &lv.Segments[len(lv.Segments)-1]; lv.Type {
	case "thin":
		last.Extents += grow
	case "linear":
		segments, f := from.linear(grow)
		if f != nil {
			return f
		}
		extend(lv, segments...)
	case "striped":
		stripes := lvm.Extents(len(last.Areas))
		grow = (grow + stripes - 1) / stripes * stripes
		areas, f := from.legs(len(last.Areas), grow/stripes)
		if f != nil {
			return f
		}
		extend(lv, lvm.Segment{Extents: grow, Type: "striped", StripeSize: last.StripeSize, Areas: areas})
	case "thin-pool":
		data := g.find(lv.Thin.Data)
		if f := n.grow(g, data, grow, from); f != nil {
			return f
		}
		data.Extents += grow
		last.Extents += grow
	default:
		return n.growRAID(g, lv, grow, from)
	}
	lv.Extents += grow
	return nil
}

// growRAID adds to each image, on the disk where the image ends.
func (n *Node) growRAID(g *group, lv *lvm.LV, grow lvm.Extents, from *room) *failure {
	top := &lv.Segments[0]
	legs := lvm.Extents(len(top.Areas))
	data := map[string]lvm.Extents{"raid1": 1, "raid5": legs - 1, "raid6": legs - 2, "raid10": legs / 2}[lv.Type]
	image := (grow + data - 1) / data
	if meta := g.find(top.Metadata[0].LV); metadataExtents((lv.Extents+grow)/data, top.RegionSize, g.ExtentSize) > meta.Extents {
		return failed("this fake does not extend the metadata of RAID")
	}
	added := make([]lvm.Segment, 0, legs)
	for _, a := range top.Areas {
		segments := g.find(a.LV).Segments
		pv := segments[len(segments)-1].Areas[0].PV
		own := &room{}
		for i := range from.spans {
			if from.spans[i].pv == pv {
				own.spans = append(own.spans, from.spans[i])
			}
		}
		areas, f := own.legs(1, image)
		if f != nil {
			return f
		}
		added = append(added, lvm.Segment{Extents: image, Type: "linear", Areas: areas})
	}
	for i, a := range top.Areas {
		part := g.find(a.LV)
		extend(part, added[i])
		part.Extents += image
	}
	top.Extents += image * data
	lv.Extents += image * data
	return nil
}

// extend adds segments to a volume, and merges those that continue its last one.
func extend(lv *lvm.LV, segments ...lvm.Segment) {
	for _, s := range segments {
		last := &lv.Segments[len(lv.Segments)-1]
		joins := s.Type == last.Type && len(s.Areas) == len(last.Areas)
		for i := range s.Areas {
			joins = joins && s.Areas[i] == lvm.Area{PV: last.Areas[i].PV, Start: last.Areas[i].Start + leg(*last)}
		}
		if joins {
			last.Extents += s.Extents
			continue
		}
		s.Start = last.Start + last.Extents
		lv.Segments = append(lv.Segments, s)
	}
}

// targetOf returns the target that a segment type needs, of those that a kernel may lack; "": none.
func targetOf(kind string) string {
	switch {
	case strings.HasPrefix(kind, "raid"):
		return lvm.TargetRAID
	case strings.HasPrefix(kind, "thin"):
		return lvm.TargetThinPool
	}
	return ""
}
