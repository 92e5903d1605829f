//go:build reallvm

package lvmtest

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
)

// TestCapacity_RealLVM: on random groups, fragmented at random, the largest volume of a random class is what Capacity
// says: real LVM makes it, each leg on a disk of its own; a row more is refused, and counting free runs shows why. Half
// of the cases begin with a smaller volume and let it grow to the largest that counting allows.
//
// NODELVM_TEST_CASES is how many (40); NODELVM_TEST_SEED repeats one: the seed is in each failure's name.
func TestCapacity_RealLVM(t *testing.T) {
	cases, seed := setting(t, "NODELVM_TEST_CASES", 40), setting(t, "NODELVM_TEST_SEED", int(time.Now().UnixNano()>>20))
	bench := newCapacityBench(t)
	t.Logf("%d cases from seed %d on", cases, seed)
	made := map[lvm.Layout]int{}
	for i := range cases {
		t.Run(fmt.Sprint("NODELVM_TEST_SEED=", seed+i), func(t *testing.T) {
			c := &capacityCase{capacityBench: bench, t: t, random: rand.New(rand.NewPCG(uint64(seed+i), 0))}
			if class, some := c.run(); some {
				made[class.Layout]++
			}
		})
	}
	t.Logf("volumes made: %v", made)
	if cases >= 100 && len(made) < 7 {
		t.Errorf("of some layouts not a single volume was made: %v", made)
	}
}

func setting(t *testing.T, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	must(t, err)
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
	extentKiB := 64 << c.random.IntN(5)
	defer func() {
		if t.Failed() { // so that the next case begins with nothing active
			admin(t, "lvremove", "-ff", "-y", capacityGroup)
		}
	}()
	c.restore(t, extentKiB, c.fragments(extentKiB))
	before := c.group()
	class = c.class()
	capacity := c.driver.capacity(t, class)
	row := lvm.Bytes(max(1, class.Stripes)) * before.ExtentSize
	name := fmt.Sprint("case-", c.random.Uint64())
	spec := lvm.Spec{Name: name, Class: class, Required: capacity.Largest + 1}
	_, err := c.driver.Create(context.Background(), spec)
	wantKind(t, fmt.Sprintf("%s, a byte more than %s", class.Layout, capacity.Largest), err, lvm.KindNoRoom)
	if capacity.Largest == 0 {
		c.checkRefusal(before, class, 0, 0)
		return class, false
	}
	spec.Required = capacity.Largest
	grow := class.Layout != lvm.LayoutThin && capacity.Largest > row && c.random.IntN(2) == 0
	if grow {
		spec.Required = row * lvm.Bytes(1+c.random.Int64N(int64(capacity.Largest/row)))
	}
	v := c.driver.create(t, spec)
	if v.Size != spec.Required {
		t.Errorf("%+v: asked for %s of at most %s, got %s", class, spec.Required, capacity.Largest, v.Size)
	}
	if grow {
		v = c.grow(v, row)
	}
	metadata := c.checkLegs(v)
	if !grow {
		c.checkRefusal(before, class, capacity.Largest, metadata)
	}
	c.remove(v, before)
	return class, true
}

// fragments draws, for each disk, the runs that are taken; some disks are full.
func (c *capacityCase) fragments(extentKiB int) [][]lvm.Run {
	n := capacityExtents(extentKiB)
	used := make([][]lvm.Run, capacityDisks)
	full := c.random.IntN(3)
	for i := range used {
		if c.random.IntN(6) < full {
			used[i] = []lvm.Run{{Start: 0, Count: lvm.Extents(n)}}
			continue
		}
		longest := 1 + c.random.IntN(n)
		for at := c.random.IntN(longest); at < n && len(used[i]) < 8; {
			count := min(n-at, 1+c.random.IntN(longest))
			used[i] = append(used[i], lvm.Run{Start: lvm.Extents(at), Count: lvm.Extents(count)})
			at += count + 1 + c.random.IntN(longest)
		}
	}
	return used
}

func (c *capacityCase) class() lvm.Class {
	class := lvm.Class{Group: capacityGroup, Wipe: lvm.WipeNone}
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
	g, there := groupNamed(readDisks(c.t), capacityGroup)
	if !there || g.Problem != "" {
		c.t.Fatalf("%+v", g)
	}
	return g
}

// grow lets the volume grow to the largest that counting allows, after a row more was refused.
func (c *capacityCase) grow(v lvm.Volume, row lvm.Bytes) lvm.Volume {
	t := c.t
	t.Helper()
	g := c.group()
	rows := lvm.Extents(0)
	switch v.Class.Layout {
	case lvm.LayoutLinear:
		for _, pv := range g.PVs {
			rows += total(pv.Free)
		}
	case lvm.LayoutStriped:
		var longest []lvm.Extents
		for _, pv := range g.PVs {
			longest = append(longest, longestRun(pv))
		}
		slices.Sort(longest)
		rows = longest[len(longest)-v.Class.Stripes]
	default:
		rows = c.room(g, v)
	}
	most := v.Size + lvm.Bytes(rows)*row
	_, err := c.driver.Extend(context.Background(), v.ID, most+1, 0)
	wantKind(t, fmt.Sprintf("%s of %s to a byte more than %s", v.Class.Layout, v.Size, most), err, lvm.KindOutOfRange)
	grown, err := c.driver.Extend(context.Background(), v.ID, most, 0)
	if err != nil || grown.Size != most {
		t.Errorf("%+v of %s to %s: %s, %v", v.Class, v.Size, most, grown.Size, err)
	}
	return grown
}

// remove removes what was made, and sees that everything returns to the group.
func (c *capacityCase) remove(v lvm.Volume, before lvm.Group) {
	t := c.t
	t.Helper()
	what := capacityGroup + "/" + v.ID.LV
	if v.Class.Layout == lvm.LayoutThin {
		what = capacityGroup + "/" + v.Class.Pool
	}
	admin(t, "lvremove", "-ff", "-y", what)
	for i, pv := range c.group().PVs {
		if !slices.Equal(pv.Free, before.PVs[i].Free) {
			t.Errorf("%s: with %s removed, %v is free on a disk, before it was %v", v.Class.Layout, what, pv.Free, before.PVs[i].Free)
		}
	}
}
