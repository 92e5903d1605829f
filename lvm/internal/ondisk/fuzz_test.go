package ondisk

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// FuzzParseID: an accepted handle is the only text of its ID.
func FuzzParseID(f *testing.F) {
	const vg = "cc0TVf-ATcJ-g50S-B9j8-iXvD-Vk8A-L3dKu5"
	for _, seed := range []string{"", "/", vg, vg + "/", vg + "/pvc-1", vg + "/../x", vg + "/-n", vg + "/a b", vg + "/" + strings.Repeat("x", 90)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, handle string) {
		id, err := lvm.ParseID(handle)
		if err != nil {
			return
		}
		if id.String() != handle || len(handle) > 128 || strings.HasPrefix(id.LV, "-") || strings.ContainsAny(id.LV, "/@ \x00") {
			t.Errorf("%q is taken as %+v", handle, id)
		}
	})
}

// FuzzSize: any size, in extents, is at least the required size, within the limit, and in whole stripes.
func FuzzSize(f *testing.F) {
	for _, seed := range [][2]int64{{0, 0}, {1, 0}, {-1, -1}, {1<<63 - 1, 0}, {1<<63 - 1, 1<<63 - 1}, {5 << 20, 6 << 20}, {0, 1}, {0, 9 << 20}} {
		for _, stripes := range []int{0, 2, 7} {
			f.Add(seed[0], seed[1], uint8(2), stripes)
		}
	}
	f.Fuzz(func(t *testing.T, required, limit int64, shift uint8, stripes int) {
		g := lvm.Group{Name: "vg", ExtentSize: lvm.MiB << (shift % 13)}
		class := lvm.Class{Group: "vg"}
		if stripes != 0 {
			class = lvm.Class{Group: "vg", Layout: lvm.LayoutStriped, Stripes: stripes}
		}
		spec, err := lvm.CheckSpec(lvm.Spec{Name: "v", Class: class, Required: lvm.Bytes(required), Limit: lvm.Bytes(limit)})
		if err != nil {
			return
		}
		n, err := spec.Extents(g)
		if err != nil {
			return
		}
		switch {
		case n <= 0 || n%spec.Class.StripeExtents() != 0:
			t.Errorf("%+v comes to %d extents", spec, n)
		case int64(n-spec.Class.StripeExtents()) >= (required-1)/int64(g.ExtentSize)+1 && required > 0:
			t.Errorf("%+v comes to %d extents of %s, a row more than it takes", spec, n, g.ExtentSize)
		case required > 0 && int64(n) < (required-1)/int64(g.ExtentSize)+1:
			t.Errorf("%+v comes to %d extents of %s, which is less", spec, n, g.ExtentSize)
		case limit > 0 && int64(n) > limit/int64(g.ExtentSize):
			t.Errorf("%+v comes to %d extents of %s, past its limit", spec, n, g.ExtentSize)
		}
	})
}

// FuzzTags: with any tags, a logical volume is a complete volume or snapshot, or is ignored.
func FuzzTags(f *testing.F) {
	f.Add("nodelvm.v=1 nodelvm.state=ready nodelvm.cluster=c nodelvm.name=n", "v-1")
	f.Add("nodelvm.v=1 nodelvm.kind=snapshot nodelvm.state=ready nodelvm.cluster=c", "s-1")
	f.Add("nodelvm.v=1 nodelvm.layout=raid5 nodelvm.stripes=2 nodelvm.state=creating", "pvc-1")
	f.Add("nodelvm.v=1 nodelvm.state=ready nodelvm.cluster=c nodelvm.name=n nodelvm.iolimits=riops=100:wbps/GiB=65536", "v-1")
	f.Add("nodelvm.v=1 nodelvm.state=ready nodelvm.cluster=c nodelvm.name=n nodelvm.iolimits=riops=100:", "v-1")
	f.Add("nodelvm. nodelvm.v fast", "data")
	f.Fuzz(func(t *testing.T, tags, name string) {
		if !lvm.NamePattern.MatchString(name) {
			return // the parser of LVM's text accepts no other
		}
		g := lvm.Group{Name: "vg", ExtentSize: lvm.MiB}
		lv := fixture.Decoded(g, lvm.LV{Name: name, Tags: strings.Fields(tags), Extents: 2})
		v, isVolume := lv.AsVolume()
		_, isSnapshot := lv.AsSnapshot()
		if isVolume && isSnapshot || (isVolume || isSnapshot) && lv.CheckTags() != nil {
			t.Errorf("tags %q make %+v", tags, lv.Managed)
		}
		if !isVolume {
			return
		}
		if _, err := lvm.CheckClass(v.Class); err != nil {
			t.Errorf("tags %q make a volume of a class that cannot be asked for: %v", tags, err)
		}
		for _, iops := range []int64{v.Rates().ReadIOPS, v.Rates().WriteIOPS} { // the kernel takes others for no limit, or a pod stops
			if iops != 0 && (iops < lvm.MinIOPS || iops > lvm.MaxIOPS) {
				t.Errorf("tags %q limit a volume to %d requests per second", tags, iops)
			}
		}
		if v.LimitsProblem != "" && v.Limits != (lvm.Limits{}) {
			t.Errorf("tags %q limit a volume to a part of what they say: %s", tags, v.Limits)
		}
		v.LimitsProblem = "" // which is of the tag that was read
		lv.Tags = lvm.VolumeTags(v)
		if again, is := fixture.Decoded(g, lv).AsVolume(); !is || again != v {
			t.Errorf("tags %q make %+v; written and read again: %+v, %v", tags, v, again, is)
		}
	})
}
