package ondisk

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Flags that LVM writes into `status`; an unknown one may change the meaning of the metadata (lvm2, lib/format_text/flags.c), so nothing
// changes its group. A reader may ignore flags in `flags` by design, except MISSING.
var (
	vgFlags = words("EXPORTED RESIZEABLE READ WRITE WRITE_LOCKED CLUSTERED SHARED PVMOVE")
	pvFlags = words("ALLOCATABLE EXPORTED MISSING")
	lvFlags = words("READ WRITE WRITE_LOCKED VISIBLE FIXED_MINOR PVMOVE LOCKED NOTSYNCED REBUILD WRITEMOSTLY " +
		"ACTIVATION_SKIP ERROR_WHEN_FULL METADATA_FORMAT NOSCAN TEMPORARY CACHE_VOL CACHE_USES_CACHEVOL " +
		"INTEGRITY INTEGRITY_METADATA RESHAPE RESHAPE_DATA_OFFSET RESHAPE_DELTA_DISKS_PLUS RESHAPE_DELTA_DISKS_MINUS " +
		"CROP_METADATA NOAUTOACTIVATE LOCKD_SANLOCK_LV MIRROR_IMAGE MIRROR_LOG MIRRORED")
)

func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// imported is a group as its text describes it, without the node's devices.
type imported struct {
	group        lvm.Group
	restrictions restrictions
	needs        map[string]lvm.Bytes // by PV UUID: the device size in the text
	names        map[string]int       // "pv0" -> index in group.PVs
	used         [][]lvm.Run          // by index in group.PVs
	opaque       map[int]bool         // by index in group.PVs: a segment of an unknown type names it, so no extent is known to be free
}

// importGroup parses a metadata text. The error says why not even the group's UUID is known. What else this reader cannot read leaves
// the group without logical volumes, and with Unreadable: LVM wrote the text with a valid checksum, so it may have volumes.
func importGroup(text string) (*imported, error) {
	into, _ := parsedTexts.Get().(*parsed)
	defer into.release()
	root, err := parseText(strings.TrimRight(text, "\x00"), into)
	if err != nil {
		return nil, err
	}
	top := &fields{section: root}
	if top.text("contents") != "Text Format Volume Group" || top.number("version", 1) != 1 || len(root.sections) != 1 {
		return nil, fmt.Errorf("its metadata is not one volume group in format 1 (%w)", cmp.Or(top.err, errors.New("another format")))
	}
	vg := &root.sections[0]
	im := &imported{needs: map[string]lvm.Bytes{}, names: map[string]int{}}
	err = im.head(vg)
	if !IsUUID(string(im.group.UUID)) {
		return nil, fmt.Errorf("the metadata of volume group %s: %w", vg.name, err)
	}
	if err == nil {
		err = im.pvs(vg)
	}
	if err != nil {
		im.group.PVs = nil
	}
	for _, step := range []func(*section) error{im.lvs, im.runs, func(*section) error { normalizeGroup(&im.group); return checkLayers(&im.group) }} {
		if err == nil {
			err = step(vg)
		}
	}
	if err != nil {
		im.group.LVs = nil
		im.restrictions.unreadable, im.group.Unreadable = err.Error(), err.Error()
	}
	return im, nil
}

// note keeps the first thing that this reader does not know.
func (im *imported) note(unknown string) {
	im.restrictions.unknown = cmp.Or(im.restrictions.unknown, unknown)
}

func (im *imported) head(vg *section) error {
	f := &fields{section: vg}
	status := f.flags("status", vgFlags)
	sectors := f.number("extent_size", math.MaxUint32)
	im.group = lvm.Group{
		UUID:           lvm.VGUUID(f.uuid("id")),
		Name:           lvm.VGName(vg.name),
		Seqno:          f.number("seqno", math.MaxUint32),
		ExtentSize:     lvm.Bytes(sectors) * lvm.SectorSize,
		Tags:           f.tags(),
		AutoActivation: !slices.Contains(f.flags("flags", nil), "NOAUTOACTIVATE"),
	}
	ownStrings(appendPointers([]*string{(*string)(&im.group.UUID), (*string)(&im.group.Name)}, im.group.Tags)...)
	im.restrictions = restrictions{
		exported: slices.Contains(status, "EXPORTED"),
		fixed:    !slices.Contains(status, "RESIZEABLE"),
		readOnly: !slices.Contains(status, "WRITE"),
		shared:   slices.Contains(status, "CLUSTERED") || slices.Contains(status, "SHARED") || f.optional("lock_type") != "",
		systemID: f.optional("system_id"),
	}
	im.note(f.unknown)
	switch {
	case f.err != nil:
		return f.err
	case f.text("format") != "lvm2":
		return fmt.Errorf("format %q", f.text("format"))
	case sectors == 0:
		return errors.New("an extent size of 0")
	}
	return nil
}

func (im *imported) pvs(vg *section) error {
	list := vg.find("physical_volumes")
	if list == nil {
		return errors.New("no physical_volumes")
	}
	for i := range list.sections {
		f := &fields{section: &list.sections[i]}
		flags := append(f.flags("status", pvFlags), f.flags("flags", nil)...)
		pv := lvm.PV{
			UUID:        f.uuid("id"),
			Extents:     lvm.Extents(f.number("pe_count", math.MaxUint32)),
			Allocatable: slices.Contains(flags, "ALLOCATABLE"),
			Missing:     slices.Contains(flags, "MISSING"),
			MissingFlag: slices.Contains(flags, "MISSING"),
		}
		ownStrings(&pv.UUID)
		im.note(f.unknown)
		start := lvm.Bytes(f.number("pe_start", math.MaxInt64/lvm.SectorSize)) * lvm.SectorSize
		if f.err != nil {
			return f.err
		}
		if pv.Extents > (math.MaxInt64-lvm.Extents(start))/lvm.Extents(im.group.ExtentSize) {
			return fmt.Errorf("%s is larger than any device", f.section.name)
		}
		if _, twice := im.needs[pv.UUID]; twice {
			return fmt.Errorf("physical volume %s is listed twice", pv.UUID)
		}
		im.names[f.section.name] = i
		im.needs[pv.UUID] = start + lvm.Bytes(pv.Extents)*im.group.ExtentSize
		im.group.PVs = append(im.group.PVs, pv)
	}
	im.used, im.opaque = make([][]lvm.Run, len(im.group.PVs)), map[int]bool{}
	return nil
}

func (im *imported) lvs(vg *section) error {
	list := vg.find("logical_volumes")
	if list == nil {
		return nil
	}
	im.group.LVs = make([]lvm.LV, 0, len(list.sections))
	named := make(map[string]int, len(list.sections)) // LV name -> index in group.LVs
	for i := range list.sections {
		lv, err := im.lv(&list.sections[i])
		if err != nil {
			return fmt.Errorf("logical volume %s: %w", list.sections[i].name, err)
		}
		if lv.Type != "snapshot" { // links an origin and its snapshot; not a volume
			named[lv.Name] = len(im.group.LVs)
			im.group.LVs = append(im.group.LVs, lv)
		}
	}
	for i := range list.sections {
		for j := range list.sections[i].sections {
			im.link(named, list.sections[i].name, &list.sections[i].sections[j])
		}
	}
	if err := im.checkNames(named); err != nil {
		return err
	}
	var parts []*string
	for i := range im.group.LVs {
		parts = appendStrings(parts[:0], &im.group.LVs[i])
		ownStrings(parts...)
	}
	return nil
}

// appendStrings appends the strings of a logical volume that are parts of the text.
func appendStrings(list []*string, lv *lvm.LV) []*string {
	list = append(list, &lv.UUID, &lv.Name, &lv.Type, &lv.Pool, &lv.Origin)
	list = appendPointers(appendPointers(list, lv.Tags), lv.UsedBy)
	for i := range lv.Segments {
		seg := &lv.Segments[i]
		list = append(list, &seg.Type)
		for _, areas := range [][]lvm.Area{seg.Areas, seg.Metadata} {
			for j := range areas {
				list = append(list, &areas[j].LV)
			}
		}
	}
	if lv.Thin != nil {
		list = append(list, &lv.Thin.Data, &lv.Thin.Metadata)
	}
	return list
}

func appendPointers(list []*string, texts []string) []*string {
	for i := range texts {
		list = append(list, &texts[i])
	}
	return list
}

// ownStrings copies strings out of the text of the group: else whoever keeps one of them, such as a volume's UUID, keeps the whole text.
func ownStrings(list ...*string) {
	size := 0
	for _, s := range list {
		size += len(*s)
	}
	var all strings.Builder
	all.Grow(size)
	for _, s := range list {
		all.WriteString(*s)
	}
	rest := all.String()
	for _, s := range list {
		*s, rest = rest[:len(*s)], rest[len(*s):]
	}
}

func (im *imported) lv(s *section) (lvm.LV, error) {
	f := &fields{section: s}
	status := f.flags("status", lvFlags)
	f.flags("flags", nil)
	im.note(f.unknown)
	lv := lvm.LV{UUID: f.uuid("id"), Name: s.name, Tags: f.tags(), Hidden: !slices.Contains(status, "VISIBLE")}
	if made := f.optionalNumber("creation_time", math.MaxInt64); made > 0 {
		lv.Created = time.Unix(made, 0).UTC()
	}
	count := f.number("segment_count", math.MaxInt32)
	if f.err != nil {
		return lv, f.err
	}
	if count != int64(len(s.sections)) || count == 0 {
		return lv, fmt.Errorf("%d segments are announced, %d are there", count, len(s.sections))
	}
	lv.Segments = make([]lvm.Segment, 0, len(s.sections))
	for i := range s.sections {
		if err := im.segment(&lv, &s.sections[i]); err != nil {
			return lv, fmt.Errorf("%s: %w", s.sections[i].name, err)
		}
	}
	return lv, nil
}

// runs derives the free extents from the used ones. A PV that an opaque segment names has none.
func (im *imported) runs(*section) error {
	for i := range im.group.PVs {
		pv := &im.group.PVs[i]
		slices.SortFunc(im.used[i], func(a, b lvm.Run) int { return int(a.Start - b.Start) })
		next := lvm.Extents(0)
		for _, used := range im.used[i] {
			if used.Start < next {
				return fmt.Errorf("extent %d of physical volume %s belongs to two volumes", used.Start, pv.UUID)
			}
			if used.Start > next {
				pv.Free = append(pv.Free, lvm.Run{Start: next, Count: used.Start - next})
			}
			next = used.Start + used.Count
		}
		if im.opaque[i] {
			pv.Free = nil
		} else if next < pv.Extents {
			pv.Free = append(pv.Free, lvm.Run{Start: next, Count: pv.Extents - next})
		}
	}
	return nil
}
