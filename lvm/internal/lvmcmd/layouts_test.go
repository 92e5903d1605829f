package lvmcmd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

func argvOf(t testing.TB, steps []Step, err error) []string {
	t.Helper()
	fixture.Must(t, err)
	var lines []string
	for _, s := range steps {
		line := strings.Join(s.Argv, " ")
		name, rest, _ := strings.Cut(line, " -y --devices ")
		name = strings.TrimSuffix(name, " -An")
		_, rest, _ = strings.Cut(rest, " ")
		lines = append(lines, name+" "+rest)
	}
	return lines
}

// TestSteps: the commands of each layout, on a group of five disks of 100 extents of 4 MiB.
func TestSteps(t *testing.T) {
	disk := []lvm.Run{{Start: 0, Count: 100}}
	s := lvm.State{Groups: []lvm.Group{fixture.TestGroup("vg", disk, []lvm.Run{{Start: 0, Count: 10}, {Start: 50, Count: 30}}, disk, disk, disk)}}
	tags := "--addtag nodelvm.v=1 --addtag nodelvm.state=creating --addtag nodelvm.cluster=cluster-1 --addtag nodelvm.name=a --addtag nodelvm.lv=" + lvm.LVName("a") + " "
	name := lvm.LVName("a")
	for _, test := range []struct {
		class lvm.Class
		size  lvm.Bytes
		want  []string
	}{
		{lvm.Class{Layout: lvm.LayoutStriped}, 36 * lvm.MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type striped -i 2 -I 64k -l 10 -n " + name + " " + tags +
			"--addtag nodelvm.layout=striped --addtag nodelvm.stripes=2 --addtag nodelvm.stripesize=64 --addtag nodelvm.formatmark=41807872 -- vg /dev/vga:0-4 /dev/vgc:0-4"}},
		{lvm.Class{Layout: lvm.LayoutRAID1, Mirrors: 2}, 36 * lvm.MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid1 -m 2 --regionsize 2048k -l 9 -n " + name + " " + tags +
			"--addtag nodelvm.layout=raid1 --addtag nodelvm.mirrors=2 --addtag nodelvm.formatmark=37613568 -- vg /dev/vga:0-9 /dev/vgc:0-9 /dev/vgd:0-9"}},
		{lvm.Class{Layout: lvm.LayoutRAID5, StripeSize: 4 * lvm.MiB}, 4 * lvm.MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid5 -i 2 -I 4096k --regionsize 4096k -l 2 -n " + name + " " + tags +
			"--addtag nodelvm.layout=raid5 --addtag nodelvm.stripes=2 --addtag nodelvm.stripesize=4096 --addtag nodelvm.formatmark=8253440 -- vg /dev/vga:0-1 /dev/vgc:0-1 /dev/vgd:0-1"}},
		{lvm.Class{Layout: lvm.LayoutRAID6, Wipe: lvm.WipeNone}, 40 * 3 * 4 * lvm.MiB, nil},
		{lvm.Class{Layout: lvm.LayoutRAID6, Wipe: lvm.WipeNone}, 29 * 3 * 4 * lvm.MiB, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid6 -i 3 -I 64k --regionsize 2048k -l 87 -n " + name + " " + tags +
			"--addtag nodelvm.wipe=none --addtag nodelvm.layout=raid6 --addtag nodelvm.stripes=3 --addtag nodelvm.stripesize=64 --addtag nodelvm.formatmark=364769280 -- vg /dev/vga:0-29 /dev/vgc:0-29 /dev/vgd:0-29 /dev/vge:0-29 /dev/vgb:50-79"}},
		{lvm.Class{Layout: lvm.LayoutRAID10}, 1, []string{"lvcreate -ay -Wy -Zy --alloc normal --type raid10 -i 2 -I 64k -m 1 --regionsize 2048k -l 2 -n " + name + " " + tags +
			"--addtag nodelvm.layout=raid10 --addtag nodelvm.stripes=2 --addtag nodelvm.stripesize=64 --addtag nodelvm.mirrors=1 --addtag nodelvm.formatmark=8253440 -- vg /dev/vga:0-1 /dev/vgc:0-1 /dev/vgd:0-1 /dev/vge:0-1"}},
		// 500 extents of 4 MiB are 32000 chunks; with 4 mappings of 64 bytes each that is 7.8 MiB of metadata: 2 extents, and 2
		// for the spare. The pool begins with the disk's remaining extents, and grows to 1 GiB or its provisioned size.
		{lvm.Class{Layout: lvm.LayoutThin}, 384 * lvm.MiB, []string{
			"lvcreate --type thin-pool -Zy --discards passdown --alloc normal -l 96 --poolmetadatasize 8192k -c 64k -n nodelvm-thin" +
				" --addtag nodelvm.v=1 --addtag nodelvm.kind=pool --addtag nodelvm.cluster=cluster-1 -- vg /dev/vga:0-99",
			"lvextend --alloc normal -l 256 -- vg/nodelvm-thin /dev/vgc:0-99 /dev/vge:0-59",
			"lvcreate -ay --type thin -V 402653184b --thinpool nodelvm-thin -n " + name + " " + tags + "--addtag nodelvm.layout=thin --addtag nodelvm.overprovision=100 --addtag nodelvm.formatmark=402518016 -- vg"}},
	} {
		test.class.Group = "vg"
		ps, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{{Name: "a", Class: test.class, Required: test.size}})
		if test.want == nil {
			if lvm.KindOf(err) != lvm.KindInsufficientCapacity {
				t.Errorf("%s of %s: %v", test.class.Layout, test.size, err)
			}
			continue
		}
		fixture.Must(t, err)
		steps, err := CreateSteps(ps[0].Create)
		if diff := cmp.Diff(test.want, argvOf(t, steps, err)); diff != "" {
			t.Errorf("%s of %s: %s", test.class.Layout, test.size, diff)
		}
	}
}

// TestClassRules: the bounds of each layout apply to each number, and the refusal names them.
func TestClassRules(t *testing.T) {
	for _, test := range []struct {
		class lvm.Class
		words string
	}{
		{lvm.Class{Layout: "raid7"}, `"raid7" is not known`},
		{lvm.Class{Layout: lvm.LayoutStriped, Stripes: 1}, "2 to 128"},
		{lvm.Class{Layout: lvm.LayoutStriped, Stripes: 129}, "2 to 128"},
		{lvm.Class{Layout: lvm.LayoutStriped, Stripes: -2}, "2 to 128"},
		{lvm.Class{Layout: lvm.LayoutRAID6, Stripes: 2}, "3 to 62"},
		{lvm.Class{Layout: lvm.LayoutRAID5, Stripes: 64}, "2 to 63"},
		{lvm.Class{Layout: lvm.LayoutRAID10, Stripes: 33}, "2 to 32"},
		{lvm.Class{Layout: lvm.LayoutRAID10, Mirrors: 2}, "1 to 1"},
		{lvm.Class{Layout: lvm.LayoutRAID1, Mirrors: 10}, "1 to 9"},
		{lvm.Class{Layout: lvm.LayoutRAID1, Stripes: 2}, "does not use stripes"},
		{lvm.Class{Layout: lvm.LayoutRAID1, StripeSize: 64 * lvm.KiB}, "does not use stripeSize"},
		{lvm.Class{Stripes: 2}, "linear does not use stripes"},
		{lvm.Class{Layout: lvm.LayoutRAID5, Mirrors: 1}, "does not use mirrors"},
		{lvm.Class{Layout: lvm.LayoutStriped, StripeSize: 96 * lvm.KiB}, "power of two"},
		{lvm.Class{Layout: lvm.LayoutStriped, StripeSize: 2 * lvm.KiB}, "power of two"},
		{lvm.Class{Layout: lvm.LayoutStriped, StripeSize: 1 * lvm.GiB}, "power of two"},
		{lvm.Class{Layout: lvm.LayoutStriped, StripeSize: -4 * lvm.KiB}, "power of two"},
		{lvm.Class{Layout: lvm.LayoutThin, Overprovision: 99}, "100 to 10000"},
		{lvm.Class{Layout: lvm.LayoutThin, Wipe: lvm.WipeZero}, "is not wiped"},
		{lvm.Class{Layout: lvm.LayoutThin, Pool: "-n"}, "name of a thin pool"},
		{lvm.Class{Layout: lvm.LayoutThin, Pool: "vg/pool"}, "name of a thin pool"},
		{lvm.Class{Layout: lvm.LayoutThin, Pool: "@all"}, "name of a thin pool"},
		{lvm.Class{Layout: lvm.LayoutThin, Pool: "a_tdata"}, "name of a thin pool"},
		{lvm.Class{Layout: lvm.LayoutThin, Pool: "snapshot1"}, "name of a thin pool"},
		{lvm.Class{Layout: lvm.LayoutThin, Pool: strings.Repeat("p", 46)}, "name of a thin pool"},
		{lvm.Class{Layout: lvm.LayoutRAID1, Pool: "p"}, "does not use thinPool"},
		{lvm.Class{Overprovision: 100}, "does not use overprovisionRatio"},
		{lvm.Class{Layout: lvm.LayoutRAID1, Wipe: "shred"}, `"shred"`},
	} {
		test.class.Group = "vg"
		if _, err := lvm.CheckClass(test.class); err == nil || lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%+v: %v; want it to say %q", test.class, err, test.words)
		}
	}
	for layout, want := range map[lvm.Layout]lvm.Class{
		lvm.LayoutStriped: {Stripes: 2, StripeSize: 64 * lvm.KiB, Wipe: lvm.WipeZero},
		lvm.LayoutRAID1:   {Mirrors: 1, Wipe: lvm.WipeZero},
		lvm.LayoutRAID6:   {Stripes: 3, StripeSize: 64 * lvm.KiB, Wipe: lvm.WipeZero},
		lvm.LayoutRAID10:  {Stripes: 2, Mirrors: 1, StripeSize: 64 * lvm.KiB, Wipe: lvm.WipeZero},
		lvm.LayoutThin:    {Pool: lvm.DefaultPool, Overprovision: 100},
	} {
		want.Group, want.Layout = "vg", layout
		if got, err := lvm.CheckClass(lvm.Class{Group: "vg", Layout: layout}); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", layout, got, err, want)
		}
	}
}

// TestLayoutRefusals: a group that cannot have the layout does not keep another one from having it.
func TestLayoutRefusals(t *testing.T) {
	disk := []lvm.Run{{Start: 0, Count: 100}}
	g := fixture.TestGroup("vg", disk, disk)
	odd := fixture.TestGroup("odd", disk, disk)
	odd.ExtentSize = 384 * lvm.KiB
	zeroless := fixture.TestGroup("zeroless", disk)
	zeroless.LVs = []lvm.LV{{Name: lvm.DefaultPool, Type: "thin-pool", Extents: 10, Thin: &lvm.ThinPool{ChunkSize: 64 * lvm.KiB}}}
	taken := fixture.TestGroup("taken", disk)
	taken.LVs = []lvm.LV{{Name: lvm.DefaultPool, Type: "linear", Extents: 10}}
	crumbs := fixture.TestGroup("crumbs", []lvm.Run{{Start: 0, Count: 1}, {Start: 5, Count: 1}, {Start: 10, Count: 1}, {Start: 20, Count: 1}})
	s := lvm.State{Groups: []lvm.Group{g, odd, zeroless, taken, crumbs}}
	for _, test := range []struct {
		class lvm.Class
		words string
	}{
		{lvm.Class{Group: "vg", Layout: lvm.LayoutRAID5}, "has 2 disks, but the layout needs 3"},
		{lvm.Class{Group: "odd", Layout: lvm.LayoutStriped, StripeSize: 256 * lvm.KiB}, "smaller stripeSize"},
		{lvm.Class{Group: "zeroless", Layout: lvm.LayoutThin}, "lvchange -Zy zeroless/nodelvm-thin"},
		{lvm.Class{Group: "taken", Layout: lvm.LayoutThin}, "is not a thin pool"},
		{lvm.Class{Group: "crumbs", Layout: lvm.LayoutThin}, "of free space in one piece on one disk, which the thin pool nodelvm-thin needs"},
	} {
		_, err := alloc.Plan(s, fixture.TestCluster, []lvm.Spec{{Name: "a", Class: test.class, Required: lvm.MiB}})
		if err == nil || lvm.KindOf(err) != lvm.KindInsufficientCapacity || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%+v: %v; want it to say %q", test.class, err, test.words)
		}
		if c, err := alloc.Capacity(s, test.class); err != nil || c != (lvm.Capacity{}) {
			t.Errorf("%+v: capacity %+v, %v", test.class, c, err)
		}
	}
}
