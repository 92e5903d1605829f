package lvm_test

import (
	"bytes"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// LvmTag matches the tags that LVM accepts (lvm(8), "Tags"), verified for every byte with LVM 2.03.16.
var LvmTag = regexp.MustCompile(`^[A-Za-z0-9_+.\-/=!:&#]+$`)

var AnyVolume = rapid.Custom(func(t *rapid.T) lvm.Volume {
	class := fixture.AnyClass("vg").Draw(t, "class")
	v := lvm.Volume{
		ID:      lvm.ID{VG: "QyFKbl-1LKa-dXZa-eERa-YiKA-CJ4f-AZZZZZ", LV: "v-1"},
		UUID:    "HQoAYp-RU1R-Ue5q-RgtC-5e3j-B9m2-2RmZ40",
		Name:    rapid.OneOf(rapid.Just("v-1"), rapid.StringN(1, -1, 128)).Draw(t, "name"),
		Claim:   rapid.StringN(-1, -1, 317).Draw(t, "claim"),
		Cluster: rapid.StringN(-1, -1, 100).Draw(t, "cluster"),
		Group:   "vg",
		Class:   class,
		State:   rapid.SampledFrom([]lvm.VolumeState{lvm.StateCreating, lvm.StateReady, lvm.StateDeleting}).Draw(t, "state"),
		Size:    class.DataSize(8 * 4 * lvm.MiB),
	}
	if class.Layout == lvm.LayoutThin && rapid.Bool().Draw(t, "copy") {
		v.Source = lvm.ID{VG: v.ID.VG, LV: rapid.StringMatching(`[vs]-[0-9a-f]{8}`).Draw(t, "source")}
	}
	if rapid.Bool().Draw(t, "limited") {
		v.Limits = AnyLimits.Draw(t, "limits")
	}
	if rapid.Bool().Draw(t, "moved") { // a volume keeps what an agent noted of its move, without the move too
		v.Move = rapid.SampledFrom([]string{"", strings.Repeat("0", 32)}).Draw(t, "move")
		v.Copied = lvm.Bytes(rapid.Int64Range(0, 1<<40).Draw(t, "copied"))
		v.Base = rapid.SampledFrom([]string{"", strings.Repeat("1", 32)}).Draw(t, "base")
		v.Record = rapid.StringN(-1, -1, lvm.MaxRecord).Draw(t, "record")
	}
	if v.NeedsFormatMark() {
		v.FormatMark = lvm.FormatMarkSize * lvm.Bytes(rapid.Int64Range(0, 1<<30).Draw(t, "mark"))
	}
	return v
})

// TestTagsRoundTrip: LVM accepts the tags of a volume with any name, and they decode to the same volume.
func TestTagsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := AnyVolume.Draw(t, "volume")
		tags := lvm.VolumeTags(want)
		for _, tag := range tags {
			if len(tag) > lvm.MaxTag || !LvmTag.MatchString(tag) {
				t.Fatalf("LVM refuses the tag %q", tag)
			}
		}
		foreign := rapid.SliceOf(rapid.StringMatching(`[a-z.=]{1,9}`)).Draw(t, "foreign")
		lv := lvm.LV{UUID: want.UUID, Name: want.ID.LV, Extents: 8, Pool: want.Class.Pool, Tags: rapid.Permutation(append(tags, foreign...)).Draw(t, "order")}
		lv = fixture.Decoded(lvm.Group{UUID: want.ID.VG, Name: "vg", ExtentSize: 4 * lvm.MiB}, lv)
		got, ours := lv.AsVolume()
		if !ours {
			t.Fatal(lv.CheckTags())
		}
		if got.Claim == "" {
			got.Claim = want.Claim // omitted if too long; TestLongestNames proves that real ones fit
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestLongestNames: the longest names of CSI and Kubernetes fit into tags, even if every byte must be escaped.
func TestLongestNames(t *testing.T) {
	v := lvm.Volume{
		Name:  strings.Repeat("ü", 64),
		Claim: strings.Repeat("n", 63) + "/" + strings.Repeat("c", 253),
		Class: lvm.Class{Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero}, State: lvm.StateReady,
	}
	lv := fixture.Decoded(lvm.Group{}, lvm.LV{Name: lvm.LVName(v.Name), Tags: lvm.VolumeTags(v)})
	if got, _ := lv.AsVolume(); got.Name != v.Name || got.Claim != v.Claim {
		t.Errorf("%v %+v", lv.CheckTags(), got)
	}
	if tags := lvm.VolumeTags(lvm.Volume{Claim: strings.Repeat("c", 2000)}); strings.Contains(strings.Join(tags, " "), "claim") {
		t.Errorf("a claim longer than a tag is written: %q", tags)
	}
}

func TestEncodeTag(t *testing.T) {
	for value, want := range map[string]string{
		"pvc-0f0e":       "nodelvm.name=pvc-0f0e",
		"a b":            "nodelvm.name=a#20b",
		"#&@":            "nodelvm.name=#23#26#40",
		"ns/data_0+1=!:": "nodelvm.name=ns/data_0+1=!:",
		"ü\x00\n":        "nodelvm.name=#c3#bc#00#0a",
	} {
		if got := lvm.EncodeTag("name", value); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

// TestDecodeUnmanagedLV: an LV without the driver's tags is unmanaged; one with invalid tags is an error that names it.
func TestDecodeUnmanagedLV(t *testing.T) {
	good := []string{"nodelvm.v=1", "nodelvm.state=ready", "nodelvm.cluster=c", "nodelvm.name=n", "nodelvm.wipe=zero", "nodelvm.layout=linear"}
	with := func(old, tag string) []string {
		var tags []string
		for _, t := range good {
			if t != old {
				tags = append(tags, t)
			}
		}
		if tag != "" {
			tags = append(tags, tag)
		}
		return tags
	}
	for _, c := range []struct {
		Name  string
		Tags  []string
		Ours  bool
		Error string
	}{
		{"none", nil, false, ""},
		{"foreign", []string{"v=1", "state=ready", "nodelvmx.v=1"}, false, ""},
		{"good", good, true, ""},
		{"a key of later days", with("", "nodelvm.colour=red"), true, ""},
		{"a later format", with("nodelvm.v=1", "nodelvm.v=2"), true, `format "2"`},
		{"no format", with("nodelvm.v=1", ""), true, "no nodelvm.v tag"},
		{"unknown state", with("nodelvm.state=ready", "nodelvm.state=lost"), true, `state is "lost"`},
		{"two states", with("", "nodelvm.state=deleting"), true, "two nodelvm.state tags"},
		{"no state", with("nodelvm.state=ready", ""), true, `has no nodelvm.state tag`},
		{"no cluster", with("nodelvm.cluster=c", ""), true, `has no nodelvm.cluster tag; the driver ignores it: correct its tags`},
		{"a name like its own", with("nodelvm.name=n", ""), true, ""},
		{"everything as usual", []string{"nodelvm.v=1", "nodelvm.state=ready", "nodelvm.cluster=c"}, true, ""},
		{"a snapshot", with("", "nodelvm.kind=snapshot"), false, "no nodelvm.source tag"},
		{"a pool", []string{"nodelvm.v=1", "nodelvm.kind=pool", "nodelvm.cluster=c"}, false, ""},
		{"a later kind", with("", "nodelvm.kind=clone"), true, `kind is "clone"`},
		{"too many stripes", append(with("nodelvm.layout=linear", "nodelvm.layout=striped"), "nodelvm.stripes=1000"), true, "2 to 128"},
		{"stripes of a linear one", with("", "nodelvm.stripes=2"), true, "does not use stripes"},
		{"stripes that are none", with("", "nodelvm.stripes=two"), true, `says "two"`},
		{"a name that no LV has", with("", "nodelvm.lv=../x"), true, `nodelvm.lv tag says "../x"`},
		{"a format mark at the beginning", with("", "nodelvm.formatmark=0"), true, `formatmark tag says "0"`},
		{"a format mark between two places", with("", "nodelvm.formatmark=4097"), true, `formatmark tag says "4097"`},
		{"a format mark nowhere", with("", "nodelvm.formatmark=end"), true, `formatmark tag says "end"`},
		{"limits of a later version", with("", "nodelvm.iolimits=latency=5"), true, ""},
		{"limits that no LV can have", with("", "nodelvm.iolimits=#zz"), true, ""},
		{"two limits", append(with("", "nodelvm.iolimits=riops=100"), "nodelvm.iolimits=riops=200"), true, ""},
		{"unknown wipe", with("nodelvm.wipe=zero", "nodelvm.wipe=maybe"), true, `"maybe"`},
		{"unknown layout", with("nodelvm.layout=linear", "nodelvm.layout=moebius"), true, `"moebius"`},
		{"broken escape", with("nodelvm.name=n", "nodelvm.name=#zz"), true, "damaged"},
		{"no UTF-8", with("nodelvm.name=n", "nodelvm.name=#ff"), true, "damaged"},
		{"cut escape", with("nodelvm.name=n", "nodelvm.name=a#4"), true, "damaged"},
		{"only a broken tag", []string{"nodelvm.v"}, true, "no value"},
	} {
		t.Run(c.Name, func(t *testing.T) {
			lv := fixture.Decoded(lvm.Group{Name: "vg"}, lvm.LV{Name: "lv7", Tags: c.Tags})
			_, ours := lv.AsVolume()
			err := lv.CheckTags()
			if ours != (c.Ours && c.Error == "") || (err == nil) != (c.Error == "") {
				t.Fatalf("ours %v, error %v", ours, err)
			}
			if err != nil && (!strings.Contains(err.Error(), c.Error) || !strings.Contains(err.Error(), "vg/lv7")) {
				t.Errorf("error %q does not contain %q", err, c.Error)
			}
		})
	}
}

func TestDMUUID(t *testing.T) {
	got := lvm.DeviceUUID("inCldE-rWxk-aqFX-PnOK-3oac-wGmx-yn8M3T", "HQoAYp-RU1R-Ue5q-RgtC-5e3j-B9m2-2RmZ40")
	if want := "LVM-inCldErWxkaqFXPnOK3oacwGmxyn8M3THQoAYpRU1RUe5qRgtC5e3jB9m22RmZ40"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func FuzzUnescapeTag(f *testing.F) {
	for _, seed := range []string{"", "pvc-1", "a#20b", "#", "#4", "#zz", "ns/n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		value, err := lvm.UnescapeTag(s)
		if err != nil {
			return
		}
		again, err := lvm.UnescapeTag(strings.TrimPrefix(lvm.EncodeTag("k", value), "nodelvm.k="))
		if err != nil || again != value {
			t.Errorf("%q is %q, encoded and decoded %q (%v)", s, value, again, err)
		}
	})
}

// TestAnyClassSetsAllFields: AnyClass draws the parameters. TestTagsRoundTrip would not test another field, and a repeated request might not
// match the volume of the first one.
func TestAnyClassSetsAllFields(t *testing.T) {
	drawn := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		class := reflect.ValueOf(fixture.AnyClass("vg").Draw(t, "class"))
		for i := range class.NumField() {
			name := class.Type().Field(i).Name
			drawn[name] = drawn[name] || !class.Field(i).IsZero()
		}
	})
	for name, set := range drawn {
		if !set {
			t.Errorf("no row of lvm.Parameters has the field Class.%s", name)
		}
	}
}

// TestFormatMark: each logical volume has its own mark, and the mark fits on the device.
func TestFormatMark(t *testing.T) {
	mark := lvm.FormatMark("uuid-a")
	if len(mark) != lvm.FormatMarkSize || bytes.Equal(mark, lvm.FormatMark("uuid-b")) || bytes.Equal(mark, lvm.FormatMark("uuid-")) {
		t.Error("two volumes have one mark")
	}
	for size, want := range map[lvm.Bytes]lvm.Bytes{
		4 * lvm.MiB: 4<<20 - 128<<10 - 4096, lvm.GiB + 1024: 1<<30 - 128<<10 - 4096, 100 << 10: 0, 0: 0, 136 << 10: 4096,
	} {
		if got := lvm.FormatMarkOffset(size); got != want || got != 0 && got > size-lvm.FormatMarkSize {
			t.Errorf("%s: at byte %d, want %d", size, got, want)
		}
	}
	source := lvm.ID{VG: "vg", LV: "v"}
	for _, test := range []struct {
		v    lvm.Volume
		want bool
	}{
		{lvm.Volume{}, true},
		{lvm.Volume{Block: true}, false},
		{lvm.Volume{Block: true, Class: lvm.Class{Encryption: lvm.EncryptionLUKS2}}, true},
		{lvm.Volume{Source: source}, false},
		{lvm.Volume{Source: source, Class: lvm.Class{Encryption: lvm.EncryptionLUKS2}}, false},
	} {
		if got := test.v.NeedsFormatMark(); got != test.want {
			t.Errorf("%+v: %t", test.v, got)
		}
	}
}
