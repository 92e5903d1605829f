package lvm

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func argvOf(t testing.TB, steps []step, err error) []string {
	t.Helper()
	must(t, err)
	var lines []string
	for _, s := range steps {
		line := strings.Join(s.argv, " ")
		name, rest, _ := strings.Cut(line, " -y --devices ")
		name = strings.TrimSuffix(name, " -An")
		_, rest, _ = strings.Cut(rest, " ")
		lines = append(lines, name+" "+rest)
	}
	return lines
}

// TestSteps: the commands of each layout, on a group of five disks of 100 extents of 4 MiB.
func TestSteps(t *testing.T) {
	disk := []Run{{0, 100}}
	s := State{Groups: []Group{testGroup("vg", disk, []Run{{0, 10}, {50, 30}}, disk, disk, disk)}}
	tags := "--addtag nodelvm.v=1 --addtag nodelvm.state=creating --addtag nodelvm.cluster=cluster-1 --addtag nodelvm.name=a --addtag nodelvm.lv=" + lvName("a") + " "
	name := lvName("a")
	for _, test := range []struct {
		class Class
		size  Bytes
		want  []string
	}{
		{Class{Layout: LayoutStriped}, 36 * MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type striped -i 2 -I 64k -l 10 -n " + name + " " + tags +
			"--addtag nodelvm.layout=striped --addtag nodelvm.stripes=2 --addtag nodelvm.stripesize=64 -- vg /dev/vga:0-4 /dev/vgc:0-4"}},
		{Class{Layout: LayoutRAID1, Mirrors: 2}, 36 * MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid1 -m 2 --regionsize 2048k -l 9 -n " + name + " " + tags +
			"--addtag nodelvm.layout=raid1 --addtag nodelvm.mirrors=2 -- vg /dev/vga:0-9 /dev/vgc:0-9 /dev/vgd:0-9"}},
		{Class{Layout: LayoutRAID5, StripeSize: 4 * MiB}, 4 * MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid5 -i 2 -I 4096k --regionsize 4096k -l 2 -n " + name + " " + tags +
			"--addtag nodelvm.layout=raid5 --addtag nodelvm.stripes=2 --addtag nodelvm.stripesize=4096 -- vg /dev/vga:0-1 /dev/vgc:0-1 /dev/vgd:0-1"}},
		{Class{Layout: LayoutRAID6, Wipe: WipeNone}, 40 * 3 * 4 * MiB, nil},
		{Class{Layout: LayoutRAID6, Wipe: WipeNone}, 29 * 3 * 4 * MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid6 -i 3 -I 64k --regionsize 2048k -l 87 -n " + name + " " + tags +
			"--addtag nodelvm.wipe=none --addtag nodelvm.layout=raid6 --addtag nodelvm.stripes=3 --addtag nodelvm.stripesize=64 -- vg /dev/vga:0-29 /dev/vgc:0-29 /dev/vgd:0-29 /dev/vge:0-29 /dev/vgb:50-79"}},
		{Class{Layout: LayoutRAID10}, 1, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid10 -i 2 -I 64k -m 1 --regionsize 2048k -l 2 -n " + name + " " + tags +
			"--addtag nodelvm.layout=raid10 --addtag nodelvm.stripes=2 --addtag nodelvm.stripesize=64 --addtag nodelvm.mirrors=1 -- vg /dev/vga:0-1 /dev/vgc:0-1 /dev/vgd:0-1 /dev/vge:0-1"}},
		// 500 extents of 4 MiB are 32000 chunks; with 4 mappings of 64 bytes each that is 7.8 MiB of metadata: 2 extents,
		// and 2 for the spare. The pool begins with what the disk has beside them, and grows to 1 GiB or the promise.
		{Class{Layout: LayoutThin}, 384 * MiB, []string{
			"lvcreate --type thin-pool -Zy --discards passdown --alloc normal -l 96 --poolmetadatasize 8192k -c 64k -n nodelvm-thin" +
				" --addtag nodelvm.v=1 --addtag nodelvm.kind=pool --addtag nodelvm.cluster=cluster-1 -- vg /dev/vga:0-99",
			"lvextend --alloc normal -l 256 -- vg/nodelvm-thin /dev/vgc:0-99 /dev/vge:0-59",
			"lvcreate -ay --type thin -V 402653184b --thinpool nodelvm-thin -n " + name + " " + tags + "--addtag nodelvm.layout=thin --addtag nodelvm.overprovision=100 -- vg"}},
	} {
		test.class.Group = "vg"
		ps, err := plan(s, testCluster, []Spec{{Name: "a", Class: test.class, Required: test.size}})
		if test.want == nil {
			if KindOf(err) != KindInsufficientCapacity {
				t.Errorf("%s of %s: %v", test.class.Layout, test.size, err)
			}
			continue
		}
		must(t, err)
		steps, err := createSteps(ps[0].carve)
		if diff := cmp.Diff(test.want, argvOf(t, steps, err)); diff != "" {
			t.Errorf("%s of %s: %s", test.class.Layout, test.size, diff)
		}
	}
}

// TestClassRules: each number is held to its layout's bounds, and the refusal tells them.
func TestClassRules(t *testing.T) {
	for _, test := range []struct {
		class Class
		words string
	}{
		{Class{Layout: "raid7"}, `"raid7" is not known`},
		{Class{Layout: LayoutStriped, Stripes: 1}, "2 to 128"},
		{Class{Layout: LayoutStriped, Stripes: 129}, "2 to 128"},
		{Class{Layout: LayoutStriped, Stripes: -2}, "2 to 128"},
		{Class{Layout: LayoutRAID6, Stripes: 2}, "3 to 62"},
		{Class{Layout: LayoutRAID5, Stripes: 64}, "2 to 63"},
		{Class{Layout: LayoutRAID10, Stripes: 33}, "2 to 32"},
		{Class{Layout: LayoutRAID10, Mirrors: 2}, "1 to 1"},
		{Class{Layout: LayoutRAID1, Mirrors: 10}, "1 to 9"},
		{Class{Layout: LayoutRAID1, Stripes: 2}, "has no stripes"},
		{Class{Layout: LayoutRAID1, StripeSize: 64 * KiB}, "has no stripeSize"},
		{Class{Stripes: 2}, "linear has no stripes"},
		{Class{Layout: LayoutRAID5, Mirrors: 1}, "has no mirrors"},
		{Class{Layout: LayoutStriped, StripeSize: 96 * KiB}, "power of two"},
		{Class{Layout: LayoutStriped, StripeSize: 2 * KiB}, "power of two"},
		{Class{Layout: LayoutStriped, StripeSize: 1 * GiB}, "power of two"},
		{Class{Layout: LayoutStriped, StripeSize: -4 * KiB}, "power of two"},
		{Class{Layout: LayoutThin, Overprovision: 99}, "100 to 10000"},
		{Class{Layout: LayoutThin, Wipe: WipeZero}, "is not wiped"},
		{Class{Layout: LayoutThin, Pool: "-n"}, "name of a thin pool"},
		{Class{Layout: LayoutThin, Pool: "vg/pool"}, "name of a thin pool"},
		{Class{Layout: LayoutThin, Pool: "@all"}, "name of a thin pool"},
		{Class{Layout: LayoutThin, Pool: "a_tdata"}, "name of a thin pool"},
		{Class{Layout: LayoutThin, Pool: "snapshot1"}, "name of a thin pool"},
		{Class{Layout: LayoutThin, Pool: strings.Repeat("p", 46)}, "name of a thin pool"},
		{Class{Layout: LayoutRAID1, Pool: "p"}, "has no thin pool"},
		{Class{Overprovision: 100}, "has no overprovisionRatio"},
		{Class{Layout: LayoutRAID1, Wipe: "shred"}, `"shred"`},
	} {
		test.class.Group = "vg"
		if _, err := checkClass(test.class); err == nil || KindOf(err) != KindInvalid || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%+v: %v; want it to say %q", test.class, err, test.words)
		}
	}
	for layout, want := range map[Layout]Class{
		LayoutStriped: {Stripes: 2, StripeSize: 64 * KiB, Wipe: WipeZero},
		LayoutRAID1:   {Mirrors: 1, Wipe: WipeZero},
		LayoutRAID6:   {Stripes: 3, StripeSize: 64 * KiB, Wipe: WipeZero},
		LayoutRAID10:  {Stripes: 2, Mirrors: 1, StripeSize: 64 * KiB, Wipe: WipeZero},
		LayoutThin:    {Pool: DefaultPool, Overprovision: 100},
	} {
		want.Group, want.Layout = "vg", layout
		if got, err := checkClass(Class{Group: "vg", Layout: layout}); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", layout, got, err, want)
		}
	}
}

// TestLayoutRefusals: a group that cannot have the layout is no reason that another one could not.
func TestLayoutRefusals(t *testing.T) {
	disk := []Run{{0, 100}}
	g := testGroup("vg", disk, disk)
	odd := testGroup("odd", disk, disk)
	odd.ExtentSize = 384 * KiB
	zeroless := testGroup("zeroless", disk)
	zeroless.LVs = []LV{{Name: DefaultPool, Type: "thin-pool", Extents: 10, Thin: &ThinPool{ChunkSize: 64 * KiB}}}
	taken := testGroup("taken", disk)
	taken.LVs = []LV{{Name: DefaultPool, Type: "linear", Extents: 10}}
	crumbs := testGroup("crumbs", []Run{{0, 1}, {5, 1}, {10, 1}, {20, 1}})
	s := State{Groups: []Group{g, odd, zeroless, taken, crumbs}}
	for _, test := range []struct {
		class Class
		words string
	}{
		{Class{Group: "vg", Layout: LayoutRAID5}, "has 2 disks, and the layout needs 3"},
		{Class{Group: "odd", Layout: LayoutStriped, StripeSize: 256 * KiB}, "smaller stripeSize"},
		{Class{Group: "zeroless", Layout: LayoutThin}, "lvchange -Zy zeroless/nodelvm-thin"},
		{Class{Group: "taken", Layout: LayoutThin}, "is not a thin pool"},
		{Class{Group: "crumbs", Layout: LayoutThin}, "no room for the thin pool"},
	} {
		_, err := plan(s, testCluster, []Spec{{Name: "a", Class: test.class, Required: MiB}})
		if err == nil || KindOf(err) != KindInsufficientCapacity || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%+v: %v; want it to say %q", test.class, err, test.words)
		}
		if c, err := capacity(s, test.class); err != nil || c != (Capacity{}) {
			t.Errorf("%+v: capacity %+v, %v", test.class, c, err)
		}
	}
}
