package ondisk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

func TestParseText(t *testing.T) {
	root, err := parseText("# c\nvg-1 {a = 1\nb=[]\nc=[\"x\", 2,]# c\nd = \"q\\\"\\\\\"\n5x{e=-7}}\nz=\"\"", &parsed{})
	fixture.Must(t, err)
	want := &section{
		entries: []entry{{key: "z", values: []scalar{{isText: true}}}},
		sections: []section{{
			name: "vg-1",
			entries: []entry{
				{key: "a", values: []scalar{{number: 1}}},
				{key: "b", list: true, values: []scalar{}},
				{key: "c", list: true, values: []scalar{{text: "x", isText: true}, {number: 2}}},
				{key: "d", values: []scalar{{text: `q"\`, isText: true}}},
			},
			sections: []section{{name: "5x", entries: []entry{{key: "e", values: []scalar{{number: -7}}}}}},
		}},
	}
	if diff := cmp.Diff(want, root, cmp.AllowUnexported(section{}, entry{}, scalar{})); diff != "" {
		t.Error(diff)
	}
}

func TestParseTextRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"open section":    "a {",
		"open list":       "a = [1",
		"open string":     `a = "x`,
		"escape at end":   `a = "x\`,
		"brace too many":  "a { } }",
		"no value":        "a = ",
		"no name":         "= 1",
		"neither":         "a b",
		"float":           "a = 1.5",
		"bare word":       "a = word",
		"two minus":       "a = --1",
		"single quotes":   "a = 'x'",
		"list in list":    "a = [[1]]",
		"no comma":        "a = [1 2]",
		"twice":           "a = 1\na = 2",
		"section twice":   "a { }\na { }",
		"key and section": "a = 1\na { }",
		"path":            "a/b = 1",
		"too deep":        strings.Repeat("a {", 100000),
		"binary":          "\x00\xff",
	} {
		if root, err := parseText(text, &parsed{}); err == nil {
			t.Errorf("%s: %+v", name, root)
		} else if !strings.Contains(err.Error(), "line ") {
			t.Errorf("%s: %q names no line", name, err)
		}
	}
}

// TestFreeRuns: free and used extents cover each PV exactly once, for any set of segments.
func TestFreeRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		used := rapid.SliceOfN(rapid.Bool(), 1, 60).Draw(t, "extents in use")
		im := &imported{group: lvm.Group{PVs: []lvm.PV{{Extents: lvm.Extents(len(used))}}}, used: make([][]lvm.Run, 1)}
		for i, u := range used {
			if u {
				im.used[0] = append(im.used[0], lvm.Run{Start: lvm.Extents(i), Count: 1})
			}
		}
		im.used[0] = rapid.Permutation(im.used[0]).Draw(t, "order")
		fixture.Must(t, im.runs(nil))
		next := lvm.Extents(-1)
		for _, run := range im.group.PVs[0].Free {
			if run.Count < 1 || run.Start <= next {
				t.Fatalf("runs are not ascending, disjoint and maximal: %v", im.group.PVs[0].Free)
			}
			next = run.Start + run.Count
			for i := run.Start; i < next; i++ {
				if used[i] {
					t.Fatalf("extent %d is in use", i)
				}
				used[i] = true
			}
		}
		if slices.Contains(used, false) {
			t.Fatal("an extent is neither free nor in use")
		}
	})
}

func FuzzImportGroup(f *testing.F) {
	for _, scenario := range fixture.Scenarios(f) {
		f.Add(captured(f, filepath.Base(scenario)))
	}
	f.Fuzz(func(t *testing.T, text string) {
		im, err := importGroup(text)
		if err != nil {
			return
		}
		for _, pv := range im.group.PVs { // the planner relies on this
			next := lvm.Extents(0)
			for _, run := range pv.Free {
				if run.Start < next || run.Count <= 0 || run.Start+run.Count > pv.Extents {
					t.Errorf("free run %+v of %+v", run, pv)
				}
				next = run.Start + run.Count + 1
			}
		}
		for _, lv := range im.group.LVs { // a walk through components ends, whatever their names and tags
			_, _ = lvm.ComponentsAndPool(im.group, lv), im.group.DamageOf(lv, nil, 0)
		}
	})
}

func FuzzLabel(f *testing.F) {
	for _, scenario := range fixture.Scenarios(f) {
		disks, err := filepath.Glob(filepath.Join(scenario, "*.gz"))
		fixture.Must(f, err)
		image := fixture.Unzip(f, disks[0])
		f.Add(bytes.Clone(image[lvm.SectorSize:2*lvm.SectorSize]), bytes.Clone(image[4096:4096+mdaHeaderSize]))
	}
	f.Fuzz(func(_ *testing.T, sector, header []byte) {
		if len(sector) < lvm.SectorSize || len(header) < mdaHeaderSize {
			return
		}
		_, _ = findLabel(sector)
		// Wrong checksums stop the fuzzer early, so it calls the parsers directly: they must not panic either.
		l, err := decodePVHeader(sector[:lvm.SectorSize], 32)
		if err != nil {
			return
		}
		for _, where := range l.areas {
			binary.LittleEndian.PutUint32(header, lvmChecksum(header[4:mdaHeaderSize]))
			if h, err := decodeAreaHeader(header, where); err == nil {
				_ = h.pieces(where.offset)
				_ = h.free()
			}
		}
	})
}

func FuzzParseReport(f *testing.F) {
	for _, scenario := range fixture.Scenarios(f) {
		reports, err := filepath.Glob(filepath.Join(scenario, "*.json"))
		fixture.Must(f, err)
		for _, path := range reports {
			text, err := os.ReadFile(path)
			fixture.Must(f, err)
			f.Add(string(text))
		}
	}
	f.Fuzz(func(_ *testing.T, text string) {
		_, _ = ParseReport(strings.NewReader(text))
	})
}

// BenchmarkImport parses the text of a group with 1000 volumes, as after each commit.
func BenchmarkImport(b *testing.B) {
	text := captured(b, "linear")
	at := strings.Index(text, "logical_volumes {\n") + len("logical_volumes {\n")
	var volumes strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&volumes, "pvc-%d {\nid = \"%06d-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa\"\nstatus = [\"READ\", \"WRITE\", \"VISIBLE\"]\nflags = []\n"+
			"tags = [\"nodelvm.v=1\", \"nodelvm.state=ready\", \"nodelvm.name=pvc-%d\"]\ncreation_time = 1795255218\ncreation_host = \"node-1\"\n"+
			"segment_count = 1\n\nsegment1 {\nstart_extent = 0\nextent_count = 1\n\ntype = \"error\"\n}\n}\n", i, i, i)
	}
	text = text[:at] + volumes.String() + text[at:]
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		_, err := importGroup(text)
		fixture.Must(b, err)
	}
}

// TestGroupKeepsNoText: no string of an imported group is a part of the group's text, which would stay in memory as long as any of them.
func TestGroupKeepsNoText(t *testing.T) {
	for _, scenario := range fixture.Scenarios(t) {
		text := captured(t, filepath.Base(scenario))
		im, err := importGroup(text)
		fixture.Must(t, err)
		first := uintptr(unsafe.Pointer(unsafe.StringData(text)))
		eachString(reflect.ValueOf(im.group), filepath.Base(scenario), func(path, s string) {
			if at := uintptr(unsafe.Pointer(unsafe.StringData(s))); s != "" && at >= first && at < first+uintptr(len(text)) {
				t.Errorf("%s: %q is a part of the text", path, s)
			}
		})
	}
}

// eachString calls do for each string in a value, with its path.
func eachString(v reflect.Value, path string, do func(path, s string)) {
	switch v.Kind() {
	case reflect.String:
		do(path, v.String())
	case reflect.Pointer:
		if !v.IsNil() {
			eachString(v.Elem(), path, do)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachString(v.Index(i), fmt.Sprintf("%s[%d]", path, i), do)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			eachString(v.Field(i), path+"."+v.Type().Field(i).Name, do)
		}
	}
}
