package ondisk

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// restrictions are a group's properties that forbid changes. Both readers collect them; problem formats them.
type restrictions struct {
	exported     bool
	shared       bool // needs lvmlockd or clvmd
	readOnly     bool
	fixed        bool // vgchange -x n
	systemID     string
	duplicates   []string // Sentences, one for each PV that two devices have.
	shrunken     []string // Sentences, one for each PV whose device is too small.
	unresponsive []string // Sentences, one for each unresponsive PV.
	moved        []string // Sentences, one for each PV that belongs to another group.
	unreadable   string   // why its logical volumes cannot be read
	unknown      string   // what LVM of a later version may have added, in words
}

// closed reports whether LVM refuses all changes, or the driver must not try any.
func (h restrictions) closed() bool {
	return h.exported || h.systemID != "" || h.shared || h.readOnly || len(h.moved) > 0 || h.unreadable != "" || h.unknown != ""
}

// problem describes the first restriction for Group.Problem; "": none.
func (h restrictions) problem(name lvm.VGName) string {
	switch {
	case len(h.unresponsive) > 0:
		return strings.Join(h.unresponsive, "; ")
	case h.unreadable != "":
		return fmt.Sprintf("the driver cannot read its metadata: %s. Its volumes stay usable; please report this with the output of vgcfgbackup", h.unreadable)
	case len(h.moved) > 0:
		return strings.Join(h.moved, "; ")
	case h.exported:
		return fmt.Sprintf("it is exported; import it with vgimport %s", name)
	case h.systemID != "":
		return fmt.Sprintf("it has the system ID %q, so only the host with this ID uses it, and the driver's LVM has none. If it is this node's own (lvm systemid) and no other host has these disks, remove it with vgchange --systemid '' %s; else the group is another host's", h.systemID, name)
	case h.shared:
		return "it is shared between hosts (lvmlockd), which this driver does not support"
	case h.readOnly:
		return "its permission is read-only"
	case h.unknown != "":
		return fmt.Sprintf("its metadata has %s, which this driver does not know", h.unknown)
	case h.fixed:
		return fmt.Sprintf("it is not resizeable; vgchange --resizeable y %s allows new volumes", name)
	case len(h.duplicates) > 0:
		return strings.Join(h.duplicates, "; ")
	}
	return strings.Join(h.shrunken, "; ")
}

func describeShrunken(device string, has, needs lvm.Bytes) string {
	return fmt.Sprintf("%s has %d bytes, its physical volume needs %d", device, has, needs)
}

func describeUnknownDevice(uuid string, devices []string) string {
	return fmt.Sprintf("its physical volume %s is missing, or on an unresponsive disk (%s)", uuid, strings.Join(devices, ", "))
}

// normalizeGroup sorts a group, so that both readers return the same, and derives redundant fields.
func normalizeGroup(g *lvm.Group) {
	slices.SortFunc(g.PVs, func(a, b lvm.PV) int { return strings.Compare(a.UUID, b.UUID) })
	slices.SortFunc(g.LVs, func(a, b lvm.LV) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(g.Tags)
	for i := range g.LVs {
		lv := &g.LVs[i]
		slices.Sort(lv.Tags)
		slices.Sort(lv.UsedBy)
		lv.UsedBy = slices.Compact(lv.UsedBy)
		for j := range lv.Segments {
			for _, a := range lv.Segments[j].Metadata {
				if part := g.FindLV(a.LV); part != nil && !part.Hidden {
					lv.Pending, part.Hidden = true, true // it has the tags of the RAID
				}
			}
		}
	}
	g.Decode()
}

// orderMissing sorts legs on missing PVs as Area specifies, so that both readers return the same. It writes to copies.
func orderMissing(g *lvm.Group) {
	missing := map[string]bool{}
	for _, pv := range g.PVs {
		if pv.Missing {
			missing[pv.UUID] = true
		}
	}
	if len(missing) < 2 {
		return
	}
	g.LVs = slices.Clone(g.LVs)
	lost := func(a lvm.Area) bool { return missing[a.PV] }
	for i := range g.LVs {
		lv := &g.LVs[i]
		if !slices.ContainsFunc(lv.Segments, func(seg lvm.Segment) bool { return countAreas(seg.Areas, lost) > 1 }) {
			continue
		}
		lv.Segments = slices.Clone(lv.Segments)
		for j := range lv.Segments {
			areas := slices.Clone(lv.Segments[j].Areas)
			for k, a := range areas {
				for l := range k {
					if b := areas[l]; lost(a) && lost(b) && a.Start == b.Start && a.PV < b.PV {
						areas[k], areas[l], a = b, a, b
					}
				}
			}
			lv.Segments[j].Areas = areas
		}
	}
}

func countAreas(areas []lvm.Area, is func(lvm.Area) bool) (n int) {
	for _, a := range areas {
		if is(a) {
			n++
		}
	}
	return n
}

func sortState(s *lvm.State) {
	slices.SortFunc(s.Groups, func(a, b lvm.Group) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UUID, b.UUID))
	})
	slices.Sort(s.UnreadDevices)
	slices.Sort(s.Unresponsive)
	slices.Sort(s.Skipped)
	slices.Sort(s.Devices)
	slices.Sort(s.Unlabeled)
}
