package lvmtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

func (n *Node) lvcreate(l line) *failure {
	if len(l.positional) == 0 || !l.flags["-y"] || l.flags["-Wy"] && !l.flags["-Zy"] {
		return &failure{exitArguments, "lvcreate: wrong arguments"}
	}
	g, f := n.visible(l.positional[0], l)
	if f != nil {
		return f
	}
	name := l.values["-n"]
	extents, err := strconv.Atoi(l.values["-l"])
	if err != nil || extents <= 0 || name == "" {
		return &failure{exitArguments, "lvcreate: wrong size or name"}
	}
	if slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == name }) {
		return failed("Logical Volume %q already exists in volume group %q", name, g.Name)
	}
	uuid := n.uuid()
	segments, f := g.allocate(uuid, lvm.Extents(extents), l.positional[1:])
	if f != nil {
		return f
	}
	g.segments = append(g.segments, segments...)
	g.LVs = append(g.LVs, lvm.LV{UUID: uuid, Name: name, Tags: l.add, Extents: lvm.Extents(extents), Type: "linear"})
	g.commit(-textOf(l.add))
	if !l.flags["-an"] {
		n.activate(g, uuid)
	}
	return nil
}

// textOf is what one volume takes of the metadata area, about.
func textOf(tags []string) lvm.Bytes { return lvm.Bytes(320 + len(strings.Join(tags, ","))) }

func (g *group) commit(mda lvm.Bytes) {
	g.Seqno++
	g.MDAFree += mda
}

// allocate takes extents for a linear volume: all of them from the named ranges, only free ones.
func (g *group) allocate(lv string, extents lvm.Extents, ranges []string) ([]segment, *failure) {
	var segments []segment
	for _, r := range ranges {
		device, spans, _ := strings.Cut(r, ":")
		i := slices.IndexFunc(g.PVs, func(pv lvm.PV) bool { return pv.Device == device })
		if i < 0 || !g.PVs[i].Allocatable {
			return nil, failed("Physical Volume %q not found in Volume Group %q.", device, g.Name)
		}
		free := g.free(g.PVs[i])
		for span := range strings.SplitSeq(spans, ":") {
			var first, last lvm.Extents
			if _, err := fmt.Sscanf(span, "%d-%d", &first, &last); err != nil || last < first {
				return nil, &failure{exitArguments, "Physical extent parsing error at " + r}
			}
			inside := slices.ContainsFunc(free, func(r lvm.Run) bool { return first >= r.Start && last < r.Start+r.Count })
			if inside && extents > 0 {
				count := min(last-first+1, extents)
				segments = append(segments, segment{lv: lv, pv: g.PVs[i].UUID, Run: lvm.Run{Start: first, Count: count}})
				extents -= count
			}
		}
	}
	if extents > 0 {
		return nil, failed("Insufficient free space: %d more extents needed", extents)
	}
	return segments, nil
}

func (n *Node) lvchange(g *group, i int, l line) *failure {
	lv := &g.LVs[i]
	if len(l.add)+len(l.del) > 0 {
		tags := slices.DeleteFunc(slices.Clone(lv.Tags), func(t string) bool { return slices.Contains(l.del, t) })
		for _, t := range l.add {
			if !slices.Contains(tags, t) {
				tags = append(tags, t)
			}
		}
		change := textOf(lv.Tags) - textOf(tags)
		lv.Tags = tags
		g.commit(change)
	}
	switch d := n.device(n.path(g, lv.UUID)); {
	case l.flags["--refresh"] && d != nil:
		d.suspended = false
	case l.flags["-ay"]:
		n.activate(g, lv.UUID)
	case l.flags["-an"] && d != nil:
		return n.deactivate(g, lv.UUID)
	}
	return nil
}

func (n *Node) lvremove(g *group, i int, l line) *failure {
	lv := g.LVs[i]
	if !l.flags["-y"] {
		return &failure{exitFailed, "Do you really want to remove? [y/n]: [n]"}
	}
	if f := n.deactivate(g, lv.UUID); f != nil {
		return f
	}
	g.segments = slices.DeleteFunc(g.segments, func(s segment) bool { return s.lv == lv.UUID })
	g.LVs = slices.Delete(g.LVs, i, i+1)
	g.commit(textOf(lv.Tags))
	return nil
}

func (n *Node) activate(g *group, lv string) {
	if n.path(g, lv) != "" {
		return
	}
	n.serial++
	n.devices = append(n.devices, &device{Device: lvm.Device{UUID: deviceUUID(g.UUID, lv), Path: fmt.Sprintf("/dev/dm-%d", n.serial)}})
}

func (n *Node) deactivate(g *group, lv string) *failure {
	path := n.path(g, lv)
	if path == "" {
		return nil
	}
	if n.device(path).opens > 0 {
		return failed("Logical volume %s/%s in use.", g.Name, lv)
	}
	n.devices = slices.DeleteFunc(n.devices, func(d *device) bool { return d.Path == path })
	return nil
}

// path finds the device of a volume; "" if it is not active.
func (n *Node) path(g *group, lv string) string {
	for _, d := range n.devices {
		if d.UUID == deviceUUID(g.UUID, lv) {
			return d.Path
		}
	}
	return ""
}

func deviceUUID(vg, lv string) string {
	return "LVM-" + strings.ReplaceAll(vg, "-", "") + strings.ReplaceAll(lv, "-", "")
}
