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
	byUUID map[string]int    // index in group.LVs
	byName map[string]int    // index in group.LVs
	byPath map[string]string // device -> UUID of the PV
}

func (item reportGroup) lvs(g *lvm.Group) error {
	r := reportedLVs{item: item, group: g, byUUID: map[string]int{}, byName: map[string]int{}, byPath: map[string]string{}}
	for _, row := range item["pv"] {
		if name := row.text("pv_name"); strings.HasPrefix(name, "/") { // else "[unknown]"
			r.byPath[name] = row.text("pv_uuid")
		}
	}
	for i, row := range item["lv"] {
		name, hidden := unbracket(row.text("lv_name"))
		size := row.bytes("lv_size")
		lv := lvm.LV{UUID: row.text("lv_uuid"), Name: name, Tags: row.list("lv_tags"), Created: row.moment("lv_time"), Hidden: hidden, Extents: lvm.Extents(size / g.ExtentSize)}
		if _, twice := r.byUUID[lv.UUID]; twice || !IsUUID(lv.UUID) || lv.Name == "" || size%g.ExtentSize != 0 {
			return fmt.Errorf("logical volume %q, UUID %q, %d bytes", lv.Name, lv.UUID, size)
		}
		r.byUUID[lv.UUID], r.byName[name] = i, i
		g.LVs = append(g.LVs, lv)
	}
	for _, row := range item["seg"] {
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
	for i, row := range item["lv"] {
		r.links(&g.LVs[i], row)
	}
	return nil
}

// links records which volumes are components of which others, from the report's rows about whole volumes.
func (r *reportedLVs) links(lv *lvm.LV, row reportRow) {
	r.use(lv.Name, row.text("pool_lv"), row.text("data_lv"), row.text("metadata_lv"), row.text("mirror_log"))
	origin, _ := unbracket(row.text("origin"))
	if r.thinSnapshot(row, origin) {
		lv.Origin = origin // it survives its origin
	} else {
		r.use(lv.Name, origin)
	}
	if lv.Type == "thin" {
		lv.Pool, _ = unbracket(row.text("pool_lv"))
	}
	if lv.Thin != nil {
		lv.Thin.Data, _ = unbracket(row.text("data_lv"))
		lv.Thin.Metadata, _ = unbracket(row.text("metadata_lv"))
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
func (r *reportedLVs) thinSnapshot(row reportRow, origin string) bool {
	i, ok := r.byName[origin]
	return ok && row.text("pool_lv") != "" && r.item["lv"][i].text("pool_lv") == row.text("pool_lv")
}

func (r *reportedLVs) segment(row reportRow) error {
	i, known := r.byUUID[row.text("lv_uuid")]
	if !known {
		return fmt.Errorf("a segment is on logical volume %q, which is not in the group", row.text("lv_uuid"))
	}
	lv := &r.group.LVs[i]
	seg := lvm.Segment{
		Start: row.extents("seg_start_pe"), Extents: row.extents("seg_size_pe"), Type: row.text("segtype"),
		StripeSize: row.bytes("stripe_size"), RegionSize: row.bytes("region_size"),
	}
	if seg.Type == "thin-pool" {
		lv.Thin = &lvm.ThinPool{ChunkSize: row.bytes("chunk_size"), Zero: row.is("zero")}
	}
	devices, metadata := row.list("devices"), row.list("metadata_devices") // "/dev/sda(0)", "[r_rimage_0](0)"
	for _, device := range slices.Concat(devices, metadata) {
		r.use(lv.Name, leg(device).name)
	}
	if hasLegs(seg.Type) {
		for _, device := range devices {
			a, err := r.area(row, seg.Areas, leg(device))
			if err != nil {
				return err
			}
			seg.Areas = append(seg.Areas, a)
		}
		for _, device := range metadata {
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
func (r *reportedLVs) area(row reportRow, earlier []lvm.Area, l legName) (lvm.Area, error) {
	if _, isLV := r.byName[l.name]; isLV {
		return lvm.Area{LV: l.name}, nil
	}
	if pv, there := r.byPath[l.name]; there {
		return lvm.Area{PV: pv, Start: l.start}, nil
	}
	for _, run := range r.item["pvseg"] {
		a := lvm.Area{PV: run.text("pv_uuid"), Start: l.start}
		same := run.text("lv_uuid") == row.text("lv_uuid") && run.number("seg_start_pe") == row.number("seg_start_pe") && run.extents("pvseg_start") == l.start
		if same && !slices.Contains(earlier, a) && r.missing(a.PV) {
			return a, nil
		}
	}
	return lvm.Area{}, fmt.Errorf("a leg of logical volume %q on %q, which is not in the group", row.text("lv_uuid"), l.name)
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
