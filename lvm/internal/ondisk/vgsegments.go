package ondisk

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// Segment types with known areas. The first three can be on PVs; all others are made of other LVs.
var (
	pvSegments = words("striped linear mirror")
	lvSegments = words("raid0 raid0_meta raid1 raid4 raid5 raid5_ls raid5_la raid5_rs raid5_ra raid5_n raid6 raid6_zr raid6_nr " +
		"raid6_nc raid6_ls_6 raid6_la_6 raid6_rs_6 raid6_ra_6 raid6_n_6 raid10 raid10_near snapshot thin thin-pool cache " +
		"cache-pool writecache vdo vdo-pool integrity error zero")
)

// maxThinID is the largest number of a device in a thin pool (Linux, Documentation/admin-guide/device-mapper/thin-provisioning.rst).
const maxThinID = 1<<24 - 1

// maxLegs exceeds the number of legs that LVM gives a volume: 128 stripes, 64 images.
const maxLegs = 256

// notReferences are a segment's string fields that name no other volume.
var notReferences = words("type tags discards cache_mode policy")

// segment adds one segment to its volume and marks its extents on PVs.
func (im *imported) segment(lv *lvm.LV, s *section) error {
	f := &fields{section: s}
	seg := lvm.Segment{
		Start:      lvm.Extents(f.number("start_extent", math.MaxUint32)),
		Extents:    lvm.Extents(f.number("extent_count", math.MaxUint32)),
		StripeSize: lvm.Bytes(f.optionalNumber("stripe_size", math.MaxUint32)) * lvm.SectorSize,
		RegionSize: lvm.Bytes(f.optionalNumber("region_size", math.MaxUint32)) * lvm.SectorSize,
	}
	kind, flags, _ := strings.Cut(f.text("type"), "+")
	if f.err != nil {
		return f.err
	}
	if seg.Start != lv.Extents || seg.Extents == 0 {
		return fmt.Errorf("it starts at extent %d with %d extents, after %d others", seg.Start, seg.Extents, lv.Extents)
	}
	opaque := !pvSegments[kind] && !lvSegments[kind]
	for flag := range strings.SplitSeq(flags, "+") {
		opaque = opaque || flag != "" && !lvFlags[flag]
	}
	if opaque {
		im.addOpaque(lv, seg, f)
		return nil
	}
	length := seg.Extents
	if kind == "striped" {
		stripes := lvm.Extents(f.number("stripe_count", math.MaxInt32))
		if stripes == 0 || seg.Extents%stripes != 0 {
			return fmt.Errorf("%d extents on %d stripes", seg.Extents, stripes)
		}
		if length = seg.Extents / stripes; stripes == 1 {
			kind = "linear"
		}
	}
	seg.Type = kind
	if err := im.legs(&seg, s); err != nil {
		return err
	}
	thin(lv, kind, f)
	if f.err != nil {
		return f.err
	}
	addSegment(lv, seg)
	return im.markUsed(s, pvSegments[kind], length)
}

func addSegment(lv *lvm.LV, seg lvm.Segment) {
	lv.Type = cmp.Or(lv.Type, seg.Type)
	lv.Extents += seg.Extents
	lv.Segments = append(lv.Segments, seg)
}

// addOpaque adds a segment of an unknown type, or with an unknown flag. It may use any extent of the PVs that it names.
func (im *imported) addOpaque(lv *lvm.LV, seg lvm.Segment, f *fields) {
	seg.Type = f.text("type")
	addSegment(lv, seg)
	for _, e := range f.section.entries {
		for _, v := range e.values {
			if index, isPV := im.names[v.text]; v.isText && isPV && !notReferences[e.key] {
				im.opaque[index] = true
			}
		}
	}
}

// thin parses the fields of a thin pool or a thin volume.
func thin(lv *lvm.LV, kind string, f *fields) {
	switch kind {
	case "thin-pool":
		lv.Thin = &lvm.ThinPool{
			Data:      f.text("pool"),
			Metadata:  f.text("metadata"),
			ChunkSize: lvm.Bytes(f.number("chunk_size", math.MaxUint32)) * lvm.SectorSize,
			Zero:      f.optionalNumber("zero_new_blocks", 1) == 1,
			Messages:  messages(f),

			TransactionID: uint64(f.number("transaction_id", math.MaxInt64)),
		}
	case "thin":
		lv.Pool, lv.Origin = f.text("thin_pool"), f.optional("origin")
		lv.ThinID = int(f.optionalNumber("device_id", maxThinID))
	}
}

// messages parses LVM's messages for a thin pool: `message1 { create = "v" }`, `message2 { delete = 7 }`.
func messages(pool *fields) (list []string) {
	for i := range pool.section.sections {
		m := &fields{section: &pool.section.sections[i]}
		if name := m.optional("create"); name != "" {
			list = append(list, lvm.CreateMessage+name)
		} else {
			list = append(list, fmt.Sprintf("delete %d", m.number("delete", math.MaxUint32)))
		}
		if pool.err == nil {
			pool.err = m.err
		}
	}
	return list
}

// hasLegs reports whether a State has the legs of a segment type.
func hasLegs(kind string) bool { return pvSegments[kind] || strings.HasPrefix(kind, "raid") }

// legs parses the legs of a segment: `stripes = ["pv0", 12, "pv1", 0]`, `mirrors` alike, `raids = ["r_rmeta_0", "r_rimage_0",
// ...]`, `raid0_lvs = ["r_rimage_0", ...]`.
func (im *imported) legs(seg *lvm.Segment, s *section) (err error) {
	if !hasLegs(seg.Type) {
		return nil
	}
	defer func() {
		if legs := len(seg.Areas); err == nil && legs > maxLegs {
			err = fmt.Errorf("a segment with %d legs", legs)
		}
	}()
	for _, key := range []string{"stripes", "mirrors"} {
		if e := s.entry(key); e != nil {
			return im.pairs(seg, e)
		}
	}
	f := &fields{section: s}
	names, step := f.strings("raids"), 2
	if names == nil {
		names, step = f.strings("raid0_lvs"), 1
	}
	if f.err != nil || len(names) == 0 || len(names)%step != 0 {
		return fmt.Errorf("a segment of type %s lists its legs in an unknown way", seg.Type)
	}
	for i, name := range names {
		if step == 2 && i%2 == 0 {
			seg.Metadata = append(seg.Metadata, lvm.Area{LV: name})
		} else {
			seg.Areas = append(seg.Areas, lvm.Area{LV: name})
		}
	}
	return nil
}

// pairs parses legs of a name and an extent each. If a PV has the name, it is the PV's (lvm2, lib/format_text/import_vsn1.c).
func (im *imported) pairs(seg *lvm.Segment, e *entry) error {
	if !e.list || len(e.values) == 0 || len(e.values)%2 != 0 {
		return fmt.Errorf("%s is not a list of names and extents", e.key)
	}
	for i := 0; i < len(e.values); i += 2 {
		name, start := e.values[i], e.values[i+1]
		if !name.isText || start.isText || start.number < 0 {
			return fmt.Errorf("%s is not a list of names and extents", e.key)
		}
		if index, isPV := im.names[name.text]; isPV {
			seg.Areas = append(seg.Areas, lvm.Area{PV: im.group.PVs[index].UUID, Start: lvm.Extents(start.number)})
		} else {
			seg.Areas = append(seg.Areas, lvm.Area{LV: name.text})
		}
	}
	return nil
}

// markUsed marks a segment's extents on PVs, wherever it names one: `stripes = ["pv0", 0, "pv1", 20]`.
func (im *imported) markUsed(s *section, onPVs bool, length lvm.Extents) error {
	for _, e := range s.entries {
		for i, v := range e.values {
			index, isPV := im.names[v.text]
			if !v.isText || !isPV || notReferences[e.key] {
				continue
			}
			if !onPVs || i+1 >= len(e.values) || e.values[i+1].isText {
				return fmt.Errorf("%s names the physical volume %s in an unknown way", e.key, v.text)
			}
			start := lvm.Extents(e.values[i+1].number)
			if end := start + length; start < 0 || end > im.group.PVs[index].Extents || end < start {
				return fmt.Errorf("extents %d to %d are not on %s", start, end-1, v.text)
			}
			im.used[index] = append(im.used[index], lvm.Run{Start: start, Count: length})
		}
	}
	return nil
}

// link records on each LV which others are built on it: every LV that a segment names, except the origin of a thin snapshot,
// because the snapshot survives it.
func (im *imported) link(named map[string]int, user string, s *section) {
	kind := (&fields{section: s}).text("type")
	if kind == "snapshot" { // origin and cow_store: the second is the snapshot's own name
		if cow := s.entry("cow_store"); cow != nil {
			user = cow.values[0].text
		}
		if i, ok := named[user]; ok {
			im.group.LVs[i].Hidden = false
		}
	}
	for _, e := range s.entries {
		if notReferences[e.key] || kind == "thin" && e.key == "origin" {
			continue
		}
		for _, v := range e.values {
			i, ok := named[v.text]
			if _, isPV := im.names[v.text]; ok && v.isText && !isPV && v.text != user {
				im.group.LVs[i].UsedBy = append(im.group.LVs[i].UsedBy, user)
			}
		}
	}
}

// checkNames checks that every component of an LV exists.
func (im *imported) checkNames(named map[string]int) error {
	for i := range im.group.LVs {
		lv := &im.group.LVs[i]
		absent := func(name string) bool {
			_, there := named[name]
			return name != "" && !there
		}
		bad := absent(lv.Pool) || absent(lv.Origin) || lv.Thin != nil && (absent(lv.Thin.Data) || absent(lv.Thin.Metadata))
		for _, seg := range lv.Segments {
			lost := func(a lvm.Area) bool { return absent(a.LV) }
			bad = bad || slices.ContainsFunc(seg.Areas, lost) || slices.ContainsFunc(seg.Metadata, lost)
		}
		if bad {
			return fmt.Errorf("logical volume %s is made of another one that does not exist", lv.Name)
		}
	}
	return nil
}
