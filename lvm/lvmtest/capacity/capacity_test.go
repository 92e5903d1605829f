//go:build reallvm

package capacity

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestCapacity_RealLVM: on random groups of one to six disks of different size, fragmented at random, the largest volume of a
// random class is what Capacity returns: real LVM creates it, with each leg on a separate disk. LVM refuses a row more, and
// counting free runs shows why. Half of the cases begin with a smaller volume and extend it to the largest size that counting
// allows.
//
// NODELVM_TEST_CASES is the minimal number of cases; NODELVM_TEST_SEED repeats one: the name of a failure has its seed.
func TestCapacity_RealLVM(t *testing.T) {
	const usual, limit = 30, 400
	cases, seed := setting(t, "NODELVM_TEST_CASES", usual), setting(t, "NODELVM_TEST_SEED", int(time.Now().UnixNano()>>20))
	bench := newCapacityBench(t)
	t.Logf("%d cases from seed %d on", cases, seed)
	made := map[lvm.Layout]int{}
	enough := func(i int) bool { // few groups suit some layouts: such a layout gets more cases
		return i >= cases && (cases < usual || len(made) == 7 || i >= limit)
	}
	for i := 0; !enough(i); i++ {
		t.Run(fmt.Sprint("NODELVM_TEST_SEED=", seed+i), func(t *testing.T) {
			c := &capacityCase{capacityBench: bench, t: t, random: rand.New(rand.NewPCG(uint64(seed+i), 0))}
			if class, some := c.run(); some {
				made[class.Layout]++
			}
		})
	}
	t.Logf("volumes created: %v", made)
	if cases >= usual && len(made) < 7 {
		t.Errorf("no volume was created with some layouts: %v", made)
	}
}

func setting(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	hosttest.Must(t, err)
	return n
}

// capacityCase is one random group and class.
type capacityCase struct {
	*capacityBench
	t      *testing.T
	random *rand.Rand
}

func (c *capacityCase) run() (class lvm.Class, some bool) {
	t := c.t
	class = c.class()
	c.clear(t)
	c.restore(t, c.draw(legsOf(class)))
	before := c.group()
	capacity := c.driver.MustCapacity(t, class)
	if capacity.Available < capacity.Largest {
		t.Errorf("%+v: %s are available, and the largest volume is %s", class, capacity.Available, capacity.Largest)
	}
	row := lvm.Bytes(max(1, class.Stripes)) * before.ExtentSize
	spec := lvm.Spec{Name: fmt.Sprint("case-", c.random.Uint64()), Class: class, Required: capacity.Largest + 1}
	hosttest.Refused(t, fmt.Sprintf("%s, a byte more than %s", class.Layout, capacity.Largest), lvm.KindInsufficientCapacity)(c.driver.Create(context.Background(), spec))
	if capacity.Largest == 0 {
		c.checkRefusal(before, class, 0, 0)
		return class, false
	}
	spec.Required = capacity.Largest
	grow := capacity.Largest > row && c.random.IntN(2) == 0
	if grow {
		spec.Required = row * lvm.Bytes(1+c.random.Int64N(int64(capacity.Largest/row)))
	}
	v := c.driver.MustCreate(t, spec)
	if v.Size != spec.Required {
		t.Errorf("%+v: requested %s of at most %s, got %s", class, spec.Required, capacity.Largest, v.Size)
	}
	if grow {
		v = c.grow(v, row, capacity.Largest)
	}
	metadata := c.checkLegs(v)
	if !grow {
		c.checkRefusal(before, class, capacity.Largest, metadata)
	}
	return class, true
}

// draw draws a group with disks for so many legs, sometimes with one disk too few.
func (c *capacityCase) draw(legs int) capacityDraw {
	least := max(1, legs)
	if c.random.IntN(8) == 0 {
		least = max(1, legs-1)
	}
	draw := capacityDraw{extentKiB: 64 << c.random.IntN(5)}
	full := c.random.IntN(2)
	for i := range least + c.random.IntN(len(capacitySizes)-least+1) {
		most := (capacitySizes[i] - 1) * 1024 / draw.extentKiB
		disk := capacityDisk{extents: most - c.random.IntN(most*3/4), closed: c.random.IntN(20) == 0}
		switch n := c.random.IntN(6); {
		case n < full:
			disk.used = []lvm.Run{{Start: 0, Count: lvm.Extents(disk.extents)}}
		case n < 5:
			disk.used = c.fragments(disk.extents)
		}
		draw.disks = append(draw.disks, disk)
	}
	return draw
}

// fragments draws allocated runs of a disk.
func (c *capacityCase) fragments(extents int) (used []lvm.Run) {
	longest := 1 + c.random.IntN(extents)
	for at := c.random.IntN(longest); at < extents && len(used) < 8; {
		count := min(extents-at, 1+c.random.IntN(longest))
		used = append(used, lvm.Run{Start: lvm.Extents(at), Count: lvm.Extents(count)})
		at += count + 1 + c.random.IntN(longest)
	}
	return used
}

func (c *capacityCase) class() lvm.Class {
	class := lvm.Class{Group: reallvm.CapacityGroup, Wipe: lvm.WipeNone}
	switch c.random.IntN(7) {
	case 0:
		class.Layout = lvm.LayoutLinear
	case 1:
		class.Layout, class.Stripes, class.StripeSize = lvm.LayoutStriped, 2+c.random.IntN(3), lvm.KiB<<(2+c.random.IntN(5))
	case 2:
		class.Layout, class.Mirrors = lvm.LayoutRAID1, 1+c.random.IntN(3)
	case 3:
		class.Layout, class.Stripes, class.StripeSize = lvm.LayoutRAID5, 2+c.random.IntN(3), lvm.KiB<<(2+c.random.IntN(5))
	case 4:
		class.Layout, class.Stripes = lvm.LayoutRAID6, 3+c.random.IntN(2)
	case 5:
		class.Layout, class.Stripes = lvm.LayoutRAID10, 2+c.random.IntN(2)
	case 6:
		class.Layout, class.Wipe, class.Overprovision = lvm.LayoutThin, "", 100+50*c.random.IntN(5)
	}
	return class
}

func (c *capacityCase) group() lvm.Group {
	c.t.Helper()
	g, there := reallvm.FindGroup(reallvm.ReadDisks(c.t), reallvm.CapacityGroup)
	if !there || g.Problem != "" {
		c.t.Fatalf("%+v", g)
	}
	return g
}

// grow extends the volume to the largest size that counting allows, after LVM refused a row more. (A pool gets all that it can
// with its first volume, so its largest size does not change.)
func (c *capacityCase) grow(v lvm.Volume, row, largest lvm.Bytes) lvm.Volume {
	t := c.t
	t.Helper()
	g := c.group()
	rows := lvm.Extents(0)
	switch v.Class.Layout {
	case lvm.LayoutLinear:
		for _, pv := range g.PVs {
			rows += total(pv)
		}
	case lvm.LayoutStriped:
		var longest []lvm.Extents
		for _, pv := range g.PVs {
			longest = append(longest, longestRun(pv))
		}
		slices.Sort(longest)
		rows = longest[len(longest)-v.Class.Stripes]
	case lvm.LayoutThin:
		rows = lvm.Extents((largest - v.Size) / row)
	default:
		rows = c.room(g, v)
	}
	most := v.Size + lvm.Bytes(rows)*row
	hosttest.Refused(t, fmt.Sprintf("%s of %s to a byte more than %s", v.Class.Layout, v.Size, most), lvm.KindOutOfRange)(c.driver.Extend(context.Background(), v.ID, most+1, 0))
	grown, err := c.driver.Extend(context.Background(), v.ID, most, 0)
	if err != nil || grown.Size != most {
		t.Errorf("%+v of %s to %s: %s, %v", v.Class, v.Size, most, grown.Size, err)
	}
	return grown
}
