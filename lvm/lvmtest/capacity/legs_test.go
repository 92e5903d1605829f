//go:build reallvm

package capacity

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// checkLegs checks with LVM's report that each leg is on one disk, and no two legs share one. It returns how many extents of
// metadata a leg has; for a thin volume, how many its pool and the spare have.
func (c *capacityCase) checkLegs(v lvm.Volume) (metadata lvm.Extents) {
	t := c.t
	t.Helper()
	if legsOf(v.Class) == 0 {
		for _, lv := range c.group().LVs {
			if strings.HasSuffix(lv.Name, "_tmeta") || strings.HasSuffix(lv.Name, "_pmspare") {
				metadata += lv.Extents
			}
		}
		return metadata
	}
	legs := map[string][]string{} // disks by leg
	for line := range strings.Lines(c.lvm(t, "lvs", "-a", "--noheadings", "--separator", "|", "-o", "lv_name,devices,seg_size_pe", reallvm.CapacityGroup)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		name, disks := strings.Trim(cells[0], "[]"), disksIn(cells[1])
		leg, isMetadata := strings.CutPrefix(name, v.ID.LV+"_rmeta_")
		if !isMetadata {
			leg, _ = strings.CutPrefix(name, v.ID.LV+"_rimage_")
		}
		switch {
		case leg != name:
			legs[leg] = append(legs[leg], disks...)
			if isMetadata {
				_, err := fmt.Sscan(cells[2], &metadata)
				hosttest.Must(t, err)
			}
		case name == v.ID.LV && v.Class.Layout == lvm.LayoutStriped: // one line for each of its segments
			segment := map[string][]string{}
			for i, disk := range disks {
				segment[fmt.Sprint(i)] = []string{disk}
			}
			checkDistinct(t, v, segment)
		}
	}
	if v.Class.Layout != lvm.LayoutStriped {
		checkDistinct(t, v, legs)
	}
	return metadata
}

// disksIn parses "/dev/loop0(12),/dev/loop1(0)".
func disksIn(devices string) (disks []string) {
	for part := range strings.SplitSeq(devices, ",") {
		disk, _, _ := strings.Cut(part, "(")
		disks = append(disks, disk)
	}
	return disks
}

func checkDistinct(t *testing.T, v lvm.Volume, legs map[string][]string) {
	t.Helper()
	want := legsOf(v.Class)
	owner := map[string]string{}
	for leg, disks := range legs {
		for _, disk := range disks {
			if other, taken := owner[disk]; taken && other != leg {
				t.Errorf("%s: the legs %s and %s are both on %s: %v", v.Class.Layout, leg, other, disk, legs)
			}
			owner[disk] = leg
		}
	}
	if len(legs) != want || len(owner) != want {
		t.Errorf("%+v: %d legs on %d disks, want %d: %v", v.Class, len(legs), len(owner), want, legs)
	}
}

func legsOf(class lvm.Class) int {
	switch class.Layout {
	case lvm.LayoutStriped:
		return class.Stripes
	case lvm.LayoutRAID1:
		return class.Mirrors + 1
	case lvm.LayoutRAID5:
		return class.Stripes + 1
	case lvm.LayoutRAID6:
		return class.Stripes + 2
	case lvm.LayoutRAID10:
		return 2 * class.Stripes
	case lvm.LayoutLinear, lvm.LayoutThin:
	}
	return 0
}

// checkRefusal counts free runs to check that a row more than the largest volume does not fit: with the metadata per leg that
// LVM allocated for the largest, too few disks have a run that is long enough.
func (c *capacityCase) checkRefusal(g lvm.Group, class lvm.Class, largest lvm.Bytes, metadata lvm.Extents) {
	t := c.t
	t.Helper()
	var free lvm.Extents
	var longest []lvm.Extents
	for _, pv := range g.PVs {
		free += total(pv)
		longest = append(longest, longestRun(pv))
	}
	extents := lvm.Extents(largest / g.ExtentSize)
	switch legs := legsOf(class); {
	case class.Layout == lvm.LayoutThin && largest == 0:
		// Metadata and spare are 2 MiB each in groups as small as these.
		if run := slices.Max(longest); run > lvm.Extents(4*lvm.MiB/g.ExtentSize) {
			t.Errorf("no thin pool, although a run of %d extents of %s is free", run, g.ExtentSize)
		}
	case class.Layout == lvm.LayoutThin:
		if want := (free - metadata) * lvm.Extents(class.Overprovision) / 100; extents != want {
			t.Errorf("%d extents are free and %d of them metadata: at %d %% that provisions %d, and Capacity returns %d", free, metadata, class.Overprovision, want, extents)
		}
	case legs == 0:
		if extents != free {
			t.Errorf("%d extents are free, and Capacity returns %d", free, extents)
		}
	default:
		if strings.HasPrefix(string(class.Layout), "raid") {
			metadata = max(1, metadata)
		}
		need := extents/lvm.Extents(max(1, class.Stripes)) + 1 + metadata
		if n := countAtLeast(longest, need); n >= legs {
			t.Errorf("%+v: %d disks have a run of %d extents, enough for more than %s: %v", class, n, need, largest, longest)
		}
	}
}

// total counts the allocatable extents of the disk, longestRun returns the longest run of them.
func total(pv lvm.PV) (n lvm.Extents) {
	for _, r := range pv.Free {
		n += r.Count
	}
	if !pv.Allocatable {
		return 0
	}
	return n
}

func longestRun(pv lvm.PV) (n lvm.Extents) {
	for _, r := range pv.Free {
		n = max(n, r.Count)
	}
	if !pv.Allocatable {
		return 0
	}
	return n
}

func countAtLeast(lengths []lvm.Extents, need lvm.Extents) (n int) {
	for _, length := range lengths {
		if length >= need {
			n++
		}
	}
	return n
}

// room is the longest run that each leg of a RAID volume has on its disk.
func (c *capacityCase) room(g lvm.Group, v lvm.Volume) lvm.Extents {
	c.t.Helper()
	least := lvm.Extents(1 << 30)
	for _, lv := range g.LVs {
		if !strings.HasPrefix(lv.Name, v.ID.LV+"_rimage_") {
			continue
		}
		i := slices.IndexFunc(g.PVs, func(pv lvm.PV) bool { return pv.UUID == lv.Segments[0].Areas[0].PV })
		least = min(least, longestRun(g.PVs[i]))
	}
	return least
}
