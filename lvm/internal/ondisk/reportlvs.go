package ondisk

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// reportedLVs assembles a group's volumes from the three parts of the report that describe them.
type reportedLVs struct {
	item   reportGroup
	group  *lvm.Group
	byUUID map[word]int      // index in group.LVs
	byName map[string]int    // index in group.LVs
	byPath map[string]string // device -> UUID of the PV
}

func (item reportGroup) lvs(g *lvm.Group) error {
	r := reportedLVs{item: item, group: g, byUUID: map[word]int{}, byName: map[string]int{}, byPath: map[string]string{}}
	for _, row := range item.PV {
		if strings.HasPrefix(string(row.Name), "/") { // else "[unknown]"
			r.byPath[string(row.Name)] = string(row.UUID)
		}
	}
	for i, row := range item.LV {
		name, hidden := unbracket(string(row.Name))
		lv := lvm.LV{UUID: string(row.UUID), Name: name, Tags: row.Tags, Created: row.Created.Time, Hidden: hidden,
			Extents: lvm.Extents(lvm.Bytes(row.Size) / g.ExtentSize)}
		if _, twice := r.byUUID[row.UUID]; twice || !IsUUID(lv.UUID) || lv.Name == "" || lvm.Bytes(row.Size)%g.ExtentSize != 0 {
			return fmt.Errorf("logical volume %q, UUID %q, %d bytes", row.Name, lv.UUID, row.Size)
		}
		r.byUUID[row.UUID], r.byName[name] = i, i
		g.LVs = append(g.LVs, lv)
	}
	for _, row := range item.Seg {
		if err := r.segment(row); err != nil {
			return err
		}
	}
	for i := range g.LVs {
		lv := &g.LVs[i]
		slices.SortFunc(lv.Segments, func(a, b lvm.Segment) int { return int(a.Start - b.Start) })
		if len(lv.Segments) > 0 {
			lv.Type = lv.Segments[0].Type
		}
	}
	for i, row := range item.LV {
		r.links(&g.LVs[i], row)
	}
	return nil
}

// links records which volumes are components of which others, from the report's rows about whole volumes.
func (r *reportedLVs) links(lv *lvm.LV, row reportLV) {
	r.use(lv.Name, string(row.Pool), string(row.Data), string(row.Metadata), string(row.MirrorLog))
	origin, _ := unbracket(string(row.Origin))
	if r.thinSnapshot(row, origin) {
		lv.Origin = origin // it survives its origin
	} else {
		r.use(lv.Name, origin)
	}
	if lv.Type == "thin" {
		lv.Pool, _ = unbracket(string(row.Pool))
	}
	if lv.Thin != nil {
		lv.Thin.Data, _ = unbracket(string(row.Data))
		lv.Thin.Metadata, _ = unbracket(string(row.Metadata))
	}
}

// use records that a volume is built on those components that are LVs.
func (r *reportedLVs) use(user string, parts ...string) {
	for _, part := range parts {
		name, _ := unbracket(part)
		if i, ok := r.byName[name]; ok && name != user && !slices.Contains(r.group.LVs[i].UsedBy, user) {
			r.group.LVs[i].UsedBy = append(r.group.LVs[i].UsedBy, user)
		}
	}
}

// thinSnapshot reports whether row is a thin snapshot of origin, in the same pool.
func (r *reportedLVs) thinSnapshot(row reportLV, origin string) bool {
	i, ok := r.byName[origin]
	return ok && row.Pool != "" && r.item.LV[i].Pool == row.Pool
}

func (r *reportedLVs) segment(row reportSeg) error {
	i, known := r.byUUID[row.LV]
	if !known {
		return fmt.Errorf("a segment is on logical volume %q, which is not in the group", row.LV)
	}
	lv := &r.group.LVs[i]
	seg := lvm.Segment{
		Start: lvm.Extents(row.Start), Extents: lvm.Extents(row.Extents), Type: string(row.Type),
		StripeSize: lvm.Bytes(row.StripeSize), RegionSize: lvm.Bytes(row.RegionSize),
	}
	if row.Type == "thin-pool" {
		lv.Thin = &lvm.ThinPool{ChunkSize: lvm.Bytes(row.ChunkSize), Zero: bool(row.Zero)}
	}
	for _, device := range slices.Concat(row.Devices, row.Metadata) {
		r.use(lv.Name, leg(device).name)
	}
	if hasLegs(seg.Type) {
		for _, device := range row.Devices {
			a, err := r.area(row, seg.Areas, leg(device))
			if err != nil {
				return err
			}
			seg.Areas = append(seg.Areas, a)
		}
		for _, device := range row.Metadata {
			seg.Metadata = append(seg.Metadata, lvm.Area{LV: leg(device).name})
		}
	}
	lv.Segments = append(lv.Segments, seg)
	return nil
}

// legName is one leg in the report's notation: "/dev/sda(12)", "[unknown](12)" for a missing PV, "[r_rimage_0](0)".
type legName struct {
	name  string
	start lvm.Extents
}

func leg(text string) legName {
	at := strings.LastIndexByte(text, '(')
	if at < 0 {
		return legName{name: text}
	}
	start, _ := strconv.ParseInt(strings.TrimSuffix(text[at+1:], ")"), 10, 64)
	name, _ := unbracket(text[:at])
	return legName{name, lvm.Extents(start)}
}

// area returns the PV or LV of a leg. A missing PV has no name: area finds it among the report's PV ranges of this segment,
// without those of its earlier legs.
func (r *reportedLVs) area(row reportSeg, earlier []lvm.Area, l legName) (lvm.Area, error) {
	if _, isLV := r.byName[l.name]; isLV {
		return lvm.Area{LV: l.name}, nil
	}
	if pv, there := r.byPath[l.name]; there {
		return lvm.Area{PV: pv, Start: l.start}, nil
	}
	for _, stretch := range r.item.PVSeg {
		a := lvm.Area{PV: string(stretch.PV), Start: l.start}
		same := stretch.LV == row.LV && stretch.LVStart == row.Start && lvm.Extents(stretch.Start) == l.start
		if same && !slices.Contains(earlier, a) && r.missing(a.PV) {
			return a, nil
		}
	}
	return lvm.Area{}, fmt.Errorf("a leg of logical volume %q on %q, which is not in the group", row.LV, l.name)
}

func (r *reportedLVs) missing(uuid string) bool {
	return slices.ContainsFunc(r.group.PVs, func(pv lvm.PV) bool { return pv.UUID == uuid && pv.Missing })
}

func unbracket(name string) (bare string, hidden bool) {
	if inner, ok := strings.CutPrefix(name, "["); ok {
		return strings.TrimSuffix(inner, "]"), true
	}
	return name, false
}
