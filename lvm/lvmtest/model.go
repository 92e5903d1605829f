package lvmtest

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// group is one volume group. The segments of its volumes record their extents; a read derives the rest from them (free extents,
// users of a volume).
type group struct {
	lvm.Group
	text lvm.Bytes // the volumes' share of the metadata area
	away bool      // its disks are unplugged

	decoded   []*lvm.Managed // of the volumes of content, as decodedAt says
	decodedAt uint32         // a checksum
}

func (g *group) find(name string) *lvm.LV {
	for i := range g.LVs {
		if g.LVs[i].Name == name {
			return &g.LVs[i]
		}
	}
	return nil
}

// add adds a volume and returns it; pointers that earlier calls returned become stale.
func (g *group) add(lv lvm.LV) *lvm.LV {
	if len(lv.Segments) > 0 {
		lv.Type = lv.Segments[0].Type
		lv.Extents = 0
		for i := range lv.Segments {
			lv.Segments[i].Start = lv.Extents
			lv.Extents += lv.Segments[i].Extents
		}
	}
	g.LVs = append(g.LVs, lv)
	return &g.LVs[len(g.LVs)-1]
}

// drop removes a volume with its parts.
func (g *group) drop(name string) {
	for _, part := range g.parts(name) {
		g.drop(part)
	}
	g.LVs = slices.DeleteFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == name })
	for i := range g.LVs {
		if g.LVs[i].Origin == name {
			g.LVs[i].Origin = "" // a thin snapshot outlives its origin
		}
	}
}

// parts names the parts of a volume.
func (g *group) parts(name string) []string {
	if lv := g.find(name); lv != nil {
		return partsOf(lv)
	}
	return nil
}

// addParts adds the names of a volume and of all volumes below it.
func (g *group) addParts(names map[string]bool, name string) {
	if name == "" {
		return
	}
	names[name] = true
	for _, part := range g.parts(name) {
		g.addParts(names, part)
	}
}

func partsOf(lv *lvm.LV) []string {
	var names []string
	for _, s := range lv.Segments {
		for _, areas := range [][]lvm.Area{s.Metadata, s.Areas} {
			for _, a := range areas {
				if a.LV != "" && !slices.Contains(names, a.LV) {
					names = append(names, a.LV)
				}
			}
		}
	}
	if lv.Thin != nil {
		names = append(names, lv.Thin.Metadata, lv.Thin.Data)
	}
	return names
}

// leg is the number of extents that a segment takes of each area.
func leg(s lvm.Segment) lvm.Extents {
	if s.Type == "striped" {
		return s.Extents / lvm.Extents(len(s.Areas))
	}
	return s.Extents
}

// free lists the runs of a disk without a segment.
func (g *group) free(pv lvm.PV) []lvm.Run {
	runs := []lvm.Run{{Start: 0, Count: pv.Extents}}
	for _, lv := range g.LVs {
		for _, s := range lv.Segments {
			for _, a := range s.Areas {
				if a.PV == pv.UUID {
					runs = without(runs, lvm.Run{Start: a.Start, Count: leg(s)})
				}
			}
		}
	}
	if len(runs) == 0 {
		return nil
	}
	return runs
}

func without(runs []lvm.Run, taken lvm.Run) []lvm.Run {
	var rest []lvm.Run
	for _, r := range runs {
		first, end := max(r.Start, taken.Start), min(r.Start+r.Count, taken.Start+taken.Count)
		if first >= end {
			rest = append(rest, r)
			continue
		}
		if n := first - r.Start; n > 0 {
			rest = append(rest, lvm.Run{Start: r.Start, Count: n})
		}
		if n := r.Start + r.Count - end; n > 0 {
			rest = append(rest, lvm.Run{Start: end, Count: n})
		}
	}
	return rest
}

// within cuts the runs to a range.
func within(runs []lvm.Run, stretch lvm.Run) []lvm.Run {
	var cut []lvm.Run
	for _, r := range runs {
		first, end := max(r.Start, stretch.Start), min(r.Start+r.Count, stretch.Start+stretch.Count)
		if first < end {
			cut = append(cut, lvm.Run{Start: first, Count: end - first})
		}
	}
	return cut
}

// room is what a command may still allocate: the free extents in its spans, in their order.
type room struct{ spans []span }

func (g *group) room(args []string) (*room, *failure) {
	spans, f := g.spans(args)
	if f != nil {
		return nil, f
	}
	r := &room{}
	for _, s := range spans {
		for _, pv := range g.PVs {
			if pv.UUID != s.pv {
				continue
			}
			for _, run := range within(g.free(pv), s.Run) {
				r.spans = append(r.spans, span{pv.UUID, run})
			}
		}
	}
	return r, nil
}

// linear takes extents from one span after the other.
func (r *room) linear(extents lvm.Extents) ([]lvm.Segment, *failure) {
	var segments []lvm.Segment
	for extents > 0 {
		if len(r.spans) == 0 {
			return nil, failed("Insufficient free space: %d more extents needed", extents)
		}
		s := &r.spans[0]
		n := min(s.Count, extents)
		segments = append(segments, lvm.Segment{Extents: n, Type: "linear", Areas: []lvm.Area{{PV: s.pv, Start: s.Start}}})
		extents -= n
		s.Start += n
		if s.Count -= n; s.Count == 0 {
			r.spans = r.spans[1:]
		}
	}
	return segments, nil
}

// legs takes one run of this length on each of n disks.
func (r *room) legs(n int, length lvm.Extents) ([]lvm.Area, *failure) {
	var areas []lvm.Area
	for i := range r.spans {
		s := &r.spans[i]
		used := slices.ContainsFunc(areas, func(a lvm.Area) bool { return a.PV == s.pv })
		if len(areas) < n && s.Count >= length && !used {
			areas = append(areas, lvm.Area{PV: s.pv, Start: s.Start})
			s.Start += length
			s.Count -= length
		}
	}
	if len(areas) < n {
		return nil, failed("Insufficient suitable allocatable extents for %d legs of %d extents.", n, length)
	}
	return areas, nil
}

// read returns the group as a reader of the disks sees it. It decodes the tags of each commit once.
func (g *group) read() lvm.Group {
	seen := g.content()
	seen.Checksum = g.checksum()
	at := crc32.ChecksumIEEE(fmt.Appendf(nil, "%d %s", seen.Checksum, seen.Name))
	if at == g.decodedAt && len(g.decoded) == len(seen.LVs) {
		for i := range seen.LVs {
			seen.LVs[i].Managed = g.decoded[i]
		}
		return seen
	}
	seen.Decode()
	g.decoded, g.decodedAt = nil, at
	for _, lv := range seen.LVs {
		g.decoded = append(g.decoded, lv.Managed)
	}
	return seen
}

// content is what read returns without the checksum, which takes long.
func (g *group) content() lvm.Group {
	seen := g.Group
	seen.Tags = slices.Sorted(slices.Values(g.Tags))
	seen.PVs = slices.Clone(g.PVs)
	for i := range seen.PVs {
		seen.PVs[i].Free = g.free(seen.PVs[i])
	}
	seen.LVs = slices.Clone(g.LVs)
	users := g.users()
	for i := range seen.LVs {
		lv := &seen.LVs[i]
		lv.Tags = slices.Sorted(slices.Values(lv.Tags))
		lv.Segments = slices.Clone(lv.Segments)
		lv.UsedBy = users[lv.Name]
		if lv.Thin != nil {
			pool := *lv.Thin
			lv.Thin = &pool
		}
	}
	slices.SortFunc(seen.PVs, func(a, b lvm.PV) int { return strings.Compare(a.UUID, b.UUID) })
	slices.SortFunc(seen.LVs, func(a, b lvm.LV) int { return strings.Compare(a.Name, b.Name) })
	return seen
}

// checksum distinguishes the texts of commits.
func (g *group) checksum() uint32 {
	return crc32.ChecksumIEEE(fmt.Appendf(nil, "%d %#v %#v", g.Seqno, g.Tags, g.LVs))
}

// users names, for each volume, those that it is a part of.
func (g *group) users() map[string][]string {
	users := map[string][]string{}
	for i := range g.LVs {
		lv := &g.LVs[i]
		if lv.Pool != "" {
			users[lv.Pool] = append(users[lv.Pool], lv.Name)
		}
		for _, part := range partsOf(lv) {
			users[part] = append(users[part], lv.Name)
		}
	}
	for _, names := range users {
		slices.Sort(names)
	}
	return users
}

// textOf is one volume's share of the metadata area, roughly.
func textOf(tags []string) lvm.Bytes { return lvm.Bytes(320 + len(strings.Join(tags, ","))) }

// commit writes the group's metadata.
func (g *group) commit() {
	g.Seqno++
	text := lvm.Bytes(0)
	for _, lv := range g.LVs {
		text += textOf(lv.Tags)
	}
	g.MDAFree -= text - g.text
	g.text = text
}
