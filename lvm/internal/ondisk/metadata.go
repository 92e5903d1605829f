package ondisk

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// assemble builds the groups from the probes of all devices. component reports whether a device is only a part of another one.
func assemble(probes []probe, component func(name string) (bool, error)) lvm.State {
	var state lvm.State
	var pvs []probe
	var unknown []string // unresponsive devices that never answered
	for _, p := range probes {
		if p.err == nil && p.MadeOf != MadeOfDisks && p.MadeOf != MadeOfVolume {
			state.Skipped = append(state.Skipped, fmt.Sprintf("%s is not searched for volume groups: %s", p.device.Path, p.Reason))
		}
		part := false
		if (p.label != nil || p.unresponsive()) && p.MadeOf == MadeOfDisks || p.MadeOf == madeOfRemoved {
			var err error
			part, err = component(p.device.Name)
			p.err = errors.Join(p.err, err)
		}
		if part {
			if p.unresponsive() { // the device on it may still answer, from its other legs or paths
				state.Unresponsive = append(state.Unresponsive, p.device.Path)
			}
			continue
		}
		p = p.withoutUnparsed()
		if p.err != nil {
			state.UnreadDevices = append(state.UnreadDevices, fmt.Sprintf("%s could not be read: %v", p.device.Path, p.err))
			state.Unlabeled = append(state.Unlabeled, p.device.Path)
		}
		if p.MadeOf != MadeOfDisks {
			continue
		}
		if p.label != nil {
			pvs = append(pvs, p)
		} else if p.unresponsive() {
			unknown = append(unknown, p.device.Path)
		}
		if p.unresponsive() {
			state.Unresponsive = append(state.Unresponsive, p.device.Path)
		} else {
			state.Devices = append(state.Devices, p.device.Path)
		}
	}
	copies, present := readCopies(pvs), byUUID(pvs)
	for _, c := range newest(copies) {
		state.Groups = append(state.Groups, c.attached(present, unknown, c.claims(copies)))
	}
	sortState(&state)
	return state
}

// withoutUnparsed returns the probe without the areas whose text does not even say which group it describes: they are unreadable.
func (p probe) withoutUnparsed() probe {
	areas := p.areas
	p.areas = nil
	for _, a := range areas {
		if a.text != nil {
			if _, err := a.text.read(); err != nil {
				p.err = errors.Join(p.err, err)
				continue
			}
		}
		p.areas = append(p.areas, a)
	}
	return p
}

// metadataCopy is one distinct text and the PVs that have it.
type metadataCopy struct {
	*imported
	text    *groupText
	holders []string // PV UUIDs
	tie     []string // PV UUIDs with another text of the same seqno
}

// readCopies finds the distinct texts: the PVs of an intact group all have the same one.
func readCopies(pvs []probe) (copies []*metadataCopy) {
	for _, p := range pvs {
		for _, a := range p.areas {
			if a.text == nil {
				continue
			}
			i := slices.IndexFunc(copies, func(c *metadataCopy) bool { return c.text.same(a.text) })
			if i < 0 {
				im, _ := a.text.read() // withoutUnparsed
				i, copies = len(copies), append(copies, &metadataCopy{imported: im, text: a.text})
			}
			if !slices.Contains(copies[i].holders, p.label.uuid) { // a PV can have two areas, or two devices
				copies[i].holders = append(copies[i].holders, p.label.uuid)
			}
		}
	}
	return copies
}

// newest returns each group's text with the highest seqno. Of two different texts with one seqno nothing proves which is current, and
// LVM would choose either: it returns the first, which names the others as a tie.
func newest(copies []*metadataCopy) []*metadataCopy {
	slices.SortStableFunc(copies, func(a, b *metadataCopy) int {
		return cmp.Or(cmp.Compare(a.group.UUID, b.group.UUID), cmp.Compare(b.group.Seqno, a.group.Seqno), cmp.Compare(a.text.checksum, b.text.checksum))
	})
	var best []*metadataCopy
	for i, c := range copies {
		if i > 0 && copies[i-1].group.UUID == c.group.UUID {
			continue
		}
		c.tie = nil
		for _, other := range copies[i+1:] {
			if other.group.UUID == c.group.UUID && other.group.Seqno == c.group.Seqno {
				c.tie = append(c.tie, other.holders...)
			}
		}
		best = append(best, c)
	}
	return best
}

func byUUID(pvs []probe) map[string][]probe {
	index := map[string][]probe{}
	for _, p := range pvs {
		index[p.label.uuid] = append(index[p.label.uuid], p)
	}
	return index
}

// claims returns the names of the other groups to which physical volumes of this group say that they belong, by UUID: a disk was moved
// while the first group could not see it.
func (c *metadataCopy) claims(all []*metadataCopy) map[string]lvm.VGName {
	moved := map[string]lvm.VGName{}
	for _, other := range all {
		for _, holder := range other.holders {
			if _, member := c.needs[holder]; member && other.group.UUID != c.group.UUID {
				moved[holder] = other.group.Name
			}
		}
	}
	return moved
}

// attached returns the group with the properties of its devices: the device of each PV, and the free space of the metadata
// areas. It does not change the imported group, which later readings of the same text use.
func (c *metadataCopy) attached(present map[string][]probe, unknown []string, moved map[string]lvm.VGName) lvm.Group {
	g, h := c.group, c.restrictions
	g.Checksum = c.text.checksum
	g.PVs = slices.Clone(g.PVs)
	for _, uuid := range c.holders {
		if len(c.group.PVs) == 0 { // the text does not tell
			g.PVs = append(g.PVs, lvm.PV{UUID: uuid})
		}
	}
	first := true
	for i := range g.PVs {
		pv := &g.PVs[i]
		found := present[pv.UUID]
		if other, is := moved[pv.UUID]; is {
			h.moved = append(h.moved, fmt.Sprintf("its physical volume %s says that it belongs to volume group %s", pv.UUID, other))
			pv.Missing = true
			continue
		}
		if len(found) == 0 {
			if len(unknown) > 0 && !pv.Missing {
				h.unresponsive = append(h.unresponsive, describeUnknownDevice(pv.UUID, unknown))
			}
			pv.Missing = true
			continue
		}
		h.collect(pv, found, c.needs[pv.UUID])
		for _, a := range found[0].areas {
			size, free := usable(a.header.size), a.header.free()
			if first || size < g.MDASize {
				g.MDASize = size
			}
			if first || free < g.MDAFree {
				g.MDAFree = free
			}
			first = false
		}
	}
	if len(c.tie) > 0 && len(h.duplicates) == 0 {
		g.Tie = c.describeTie(present)
	}
	g.Closed, g.Problem = h.closed(), cmp.Or(h.problem(g.Name), g.Tie)
	orderMissing(&g)
	return g
}

// describeTie names a device with each of two texts.
func (c *metadataCopy) describeTie(present map[string][]probe) string {
	here, there := paths(present[c.holders[0]])[0], paths(present[c.tie[0]])[0]
	return fmt.Sprintf("its physical volumes on %s and %s have different metadata with the same sequence number %d, and nothing proves which is current: disconnect the disk that is not, or restore the metadata from a backup (vgcfgrestore)",
		min(here, there), max(here, there), c.group.Seqno)
}

// collect records the faults of a PV's devices. A PV without extents of a volume may have missed commits: LVM ignores its
// MISSING flag, and clears it in the next commit (lvm2, lib/metadata/metadata.c, "unused reappeared PV").
func (h *restrictions) collect(pv *lvm.PV, found []probe, needs lvm.Bytes) {
	if isIdle(*pv) {
		pv.Missing, pv.MissingFlag = false, false
	}
	if len(found) > 1 {
		pv.DuplicateDevices = paths(found)
		slices.Sort(pv.DuplicateDevices)
		h.duplicates = append(h.duplicates, lvm.DescribeDuplicatePV(pv.UUID, pv.DuplicateDevices...))
	}
	pv.BlockSize = found[0].device.Block
	if path := slices.Min(paths(found)); pv.Missing {
		pv.ReappearedDevice = path
	} else {
		pv.Device = path
	}
	if size := found[0].device.Size; size < needs {
		h.shrunken = append(h.shrunken, describeShrunken(found[0].device.Path, size, needs))
	}
	for _, p := range found {
		if p.unresponsive() {
			pv.Unresponsive = true
			h.unresponsive = append(h.unresponsive, lvm.DescribeUnresponsive(p.device.Path))
		}
		pv.MetadataUnreadable = pv.MetadataUnreadable || p.err != nil && !p.unresponsive()
	}
}

// isIdle reports whether no volume has an extent of the PV.
func isIdle(pv lvm.PV) bool {
	free := lvm.Extents(0)
	for _, r := range pv.Free {
		free += r.Count
	}
	return free == pv.Extents
}

func paths(probes []probe) []string {
	var list []string
	for _, p := range probes {
		list = append(list, p.device.Path)
	}
	return list
}
