package ondisk

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// assemble builds the groups from the probes of all devices. component reports whether a device is only a part of another one.
func assemble(probes []probe, component func(name string) (bool, error)) (lvm.State, error) {
	var state lvm.State
	var pvs []probe
	var unknown []string // unresponsive devices that never answered
	for _, p := range probes {
		if p.err == nil && p.Standing != StandsOnDisks && p.Standing != StandsOnVolume {
			state.Skipped = append(state.Skipped, fmt.Sprintf("%s is not searched for volume groups: %s", p.device.Path, p.Reason))
		}
		part := false
		if p.label != nil && p.Standing == StandsOnDisks || p.Standing == standsOnRemoved {
			var err error
			part, err = component(p.device.Name)
			p.err = errors.Join(p.err, err)
		}
		if part {
			continue
		}
		if p.err != nil {
			state.UnreadDevices = append(state.UnreadDevices, fmt.Sprintf("%s could not be read: %v", p.device.Path, p.err))
		}
		if p.Standing != StandsOnDisks {
			continue
		}
		if p.label != nil {
			pvs = append(pvs, p)
		} else if p.silent() {
			unknown = append(unknown, p.device.Path)
		}
		if p.silent() {
			state.Unresponsive = append(state.Unresponsive, p.device.Path)
		} else {
			state.Devices = append(state.Devices, p.device.Path)
		}
	}
	copies, refused := readCopies(pvs)
	present := byUUID(pvs)
	state.PVs = foundPVs(present)
	for _, c := range newest(copies) {
		if err := c.checkMembers(present, copies); err != nil {
			refused = append(refused, err)
			continue
		}
		state.Groups = append(state.Groups, c.attached(present, unknown))
	}
	sortState(&state)
	return state, errors.Join(refused...)
}

// metadataCopy is one distinct text and the PVs that have it.
type metadataCopy struct {
	*imported
	text    *groupText
	holders []string // PV UUIDs
	tie     []string // PV UUIDs with another text of the same seqno
}

// readCopies finds the distinct texts: the PVs of an intact group all have the same one.
func readCopies(pvs []probe) (copies []*metadataCopy, refused []error) {
	for _, p := range pvs {
		for _, a := range p.areas {
			if a.text == nil {
				continue
			}
			i := slices.IndexFunc(copies, func(c *metadataCopy) bool { return c.text.same(a.text) })
			if i < 0 {
				im, err := a.text.read()
				if err != nil {
					refused = append(refused, fmt.Errorf("%s: %w", p.device.Path, err))
				}
				i, copies = len(copies), append(copies, &metadataCopy{imported: im, text: a.text})
			}
			copies[i].holders = append(copies[i].holders, p.label.uuid)
		}
	}
	return slices.DeleteFunc(copies, func(c *metadataCopy) bool { return c.imported == nil }), refused
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

// foundPVs returns the facts about physical volumes that do not depend on their groups' metadata.
func foundPVs(present map[string][]probe) []lvm.FoundPV {
	var all []lvm.FoundPV
	for uuid, found := range present {
		pv := lvm.FoundPV{UUID: uuid, Devices: paths(found), BlockSize: found[0].device.Block}
		slices.Sort(pv.Devices)
		for _, p := range found {
			pv.Unresponsive = pv.Unresponsive || p.silent()
			pv.MetadataUnreadable = pv.MetadataUnreadable || p.err != nil && !p.silent()
		}
		all = append(all, pv)
	}
	return all
}

func byUUID(pvs []probe) map[string][]probe {
	index := map[string][]probe{}
	for _, p := range pvs {
		index[p.label.uuid] = append(index[p.label.uuid], p)
	}
	return index
}

// checkMembers refuses a group with a PV whose own metadata is of another group: the PV was moved without the first group.
func (c *metadataCopy) checkMembers(present map[string][]probe, all []*metadataCopy) error {
	for _, other := range all {
		if other.group.UUID == c.group.UUID {
			continue
		}
		for _, holder := range other.holders {
			if _, member := c.needs[holder]; member && len(present[holder]) > 0 {
				return unsupported("volume group %s: its physical volume %s says that it belongs to %s", c.group.Name, holder, other.group.Name)
			}
		}
	}
	return nil
}

// attached returns the group with the properties of its devices: the device of each PV, and the free space of the metadata
// areas. It does not change the imported group, which later readings of the same text use.
func (c *metadataCopy) attached(present map[string][]probe, unknown []string) lvm.Group {
	g, h := c.group, c.restrictions
	g.Checksum = c.text.checksum
	g.PVs, g.LVs = slices.Clone(g.PVs), slices.Clone(g.LVs)
	first := true
	for i := range g.PVs {
		pv := &g.PVs[i]
		found := present[pv.UUID]
		if len(found) == 0 {
			if len(unknown) > 0 && !pv.Missing {
				h.silent = append(h.silent, describeUnknownDevice(pv.UUID, unknown))
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
		if p.silent() {
			pv.Unresponsive = true
			h.silent = append(h.silent, lvm.DescribeUnresponsive(p.device.Path))
		}
		pv.MetadataUnreadable = pv.MetadataUnreadable || p.err != nil && !p.silent()
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
