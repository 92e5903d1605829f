package ondisk

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// dense is a metadata text that is much smaller than its parsed form.
func dense(size int) string {
	var b strings.Builder
	b.Grow(size + 64)
	b.WriteString("vg {\n")
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%x=[1,1,1,1]\n", i)
	}
	b.WriteString("}\n")
	return b.String()
}

// allocated is how many bytes do allocates.
func allocated(do func()) lvm.Bytes {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return lvm.Bytes(after.TotalAlloc - before.TotalAlloc)
}

// TestDenseTextIsBounded: the parsed form of a text is bounded, whatever the text.
func TestDenseTextIsBounded(t *testing.T) {
	text := dense(int(maxText))
	var err error
	if took := allocated(func() { _, err = importGroup(text) }); took > 256*lvm.MiB {
		t.Errorf("a text of %s takes %s", lvm.Bytes(len(text)), took)
	}
	if err == nil || !strings.Contains(err.Error(), "names and values") {
		t.Errorf("%v", err)
	}
	if _, err := importGroup(dense(int(maxText / 64))); strings.Contains(fmt.Sprint(err), "names and values") {
		t.Errorf("a small one: %v", err)
	}
}

// TestTextSizeIsBounded: a header cannot make the reader allocate more than LVM can write into an area that the driver creates.
func TestTextSizeIsBounded(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/empty")
	entries, err := os.ReadDir(node.Dev)
	fixture.Must(t, err)
	path := filepath.Join(node.Dev, entries[0].Name())
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	fixture.Must(t, err)
	defer func() { fixture.Must(t, f.Close()) }()
	fixture.Must(t, f.Truncate(int64(lvm.GiB)))
	node.Attribute(t, entries[0].Name(), "size", fmt.Sprintln(int64(lvm.GiB/lvm.SectorSize)))
	header := make([]byte, mdaHeaderSize)
	_, err = f.ReadAt(header, 4096)
	fixture.Must(t, err)
	binary.LittleEndian.PutUint64(header[32:], uint64(lvm.GiB/2))
	binary.LittleEndian.PutUint64(header[48:], uint64(maxText)+1)
	binary.LittleEndian.PutUint32(header, lvmChecksum(header[4:]))
	_, err = f.WriteAt(header, 4096)
	fixture.Must(t, err)
	var state lvm.State
	if took := allocated(func() { state, err = disksOf(node).Read(t.Context()) }); took > lvm.MiB {
		t.Errorf("reading it takes %s", took)
	}
	if fixture.Must(t, err); len(state.UnreadDevices) != 1 || !strings.Contains(state.UnreadDevices[0], "more than are read") {
		t.Errorf("unread: %q", state.UnreadDevices)
	}
	if usable(int64(lvm.GiB)) != maxText || usable(int64(64*lvm.MiB)) > maxText {
		t.Errorf("an area of 1 GiB is good for %s, one of 64 MiB for %s", usable(int64(lvm.GiB)), usable(int64(64*lvm.MiB)))
	}
}

// TestTextsThatChange: texts that change at each reading do not accumulate, even if no reading completes.
func TestTextsThatChange(t *testing.T) {
	var texts groupTexts
	for i := range 10 * maxTexts {
		texts.intern(uint32(i), fmt.Append(nil, i))
	}
	if len(texts.known) > maxTexts {
		t.Errorf("%d texts are kept", len(texts.known))
	}
	last := texts.known[len(texts.known)-1]
	if texts.intern(last.checksum, []byte(last.text)) != last {
		t.Error("a text that was met a moment ago is another one")
	}
}

// TestAreasAreBounded: LVM creates at most two metadata areas.
func TestAreasAreBounded(t *testing.T) {
	spans := make([]byte, 0, 64)
	for range 2 {
		spans = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(spans, 4096), uint64(lvm.MiB))
	}
	if list, _, err := parseSpans(append(spans, make([]byte, 16)...)); err != nil || len(list) != 2 {
		t.Errorf("two: %v, %v", list, err)
	}
	spans = append(spans, spans[:16]...)
	if list, _, err := parseSpans(append(spans, make([]byte, 16)...)); err == nil {
		t.Errorf("three: %v", list)
	}
}

// layered is a group of volumes, each made of the named ones.
func layered(parts map[string][]string) lvm.Group {
	g := lvm.Group{Name: "vg"}
	for name, legs := range parts {
		seg := lvm.Segment{Extents: 1, Type: "striped"}
		for _, leg := range legs {
			seg.Areas = append(seg.Areas, lvm.Area{LV: leg})
		}
		g.LVs = append(g.LVs, lvm.LV{Name: name, Segments: []lvm.Segment{seg}})
	}
	normalizeGroup(&g)
	return g
}

// TestLayers: any walk through the components of a volume ends.
func TestLayers(t *testing.T) {
	wide := map[string][]string{"v8": nil}
	for i := range 8 {
		wide[fmt.Sprint("v", i)] = strings.Fields(strings.Repeat(fmt.Sprint("v", i+1, " "), 16))
	}
	pieces := strings.Fields(strings.Repeat("pvmove0 ", 5000))
	for what, c := range map[string]struct {
		parts map[string][]string
		ok    bool
	}{
		"RAID with integrity":  {map[string][]string{"r": {"i0", "i1"}, "i0": {"d0"}, "i1": {"d1"}, "d0": nil, "d1": nil}, true},
		"moved piece by piece": {map[string][]string{"a": pieces, "pvmove0": nil}, true},
		"itself":               {map[string][]string{"a": {"a"}}, false},
		"a circle":             {map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}}, false},
		"16 to the 8th":        {wide, false},
	} {
		g := layered(c.parts)
		err := checkLayers(&g)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			for _, lv := range g.LVs {
				_, _ = lvm.Components(g, lv), g.DamageOf(lv, nil, 0)
			}
		}
	}
}

// TestLegsAreBounded: the number of legs is bounded, since the reader compares them with one another.
func TestLegsAreBounded(t *testing.T) {
	text := captured(t, "striped")
	if _, err := importGroup(text); err != nil {
		t.Fatal(err)
	}
	at := strings.Index(text, "stripes = [") + len("stripes = [")
	many := text[:at] + strings.Repeat(`"pvX", 0, `, maxLegs) + text[at:]
	if im, err := importGroup(many); err != nil || !strings.Contains(im.group.Unreadable, "legs") {
		t.Errorf("%+v, %v", im, err)
	}
}

// FuzzDisk: for any bytes with valid checksums, a reading ends, and allocates at most a multiple of the disk's content.
func FuzzDisk(f *testing.F) {
	for _, scenario := range []string{"linear", "thin", "wrapped", "empty"} {
		image := fixture.Unzip(f, filepath.Join("testdata/groups", scenario, "loop0.gz"))
		f.Add(image[lvm.SectorSize:2*lvm.SectorSize], image[4096:4096+mdaHeaderSize], image[4096+mdaHeaderSize:16384])
	}
	path := filepath.Join(f.TempDir(), "disk")
	f.Fuzz(func(t *testing.T, sector, header, text []byte) {
		if len(sector) != lvm.SectorSize || len(header) != mdaHeaderSize || len(text) > 1<<20 {
			return
		}
		image := make([]byte, 1<<20)
		copy(image[lvm.SectorSize:], sector)
		copy(image[4096:], header)
		copy(image[4096+mdaHeaderSize:], text)
		if h, err := decodeAreaHeader(fixedChecksum(image[4096:][:mdaHeaderSize]), span{4096, 1 << 20}); err == nil && h.text.size > 0 {
			var all []byte
			for _, piece := range h.pieces(4096) {
				if piece.offset+piece.size > int64(len(image)) {
					return
				}
				all = append(all, image[piece.offset:][:piece.size]...)
			}
			binary.LittleEndian.PutUint32(image[4096+56:], lvmChecksum(all))
			fixedChecksum(image[4096:][:mdaHeaderSize])
		}
		binary.LittleEndian.PutUint32(image[lvm.SectorSize+16:], lvmChecksum(image[lvm.SectorSize+20:2*lvm.SectorSize]))
		fixture.Must(t, os.WriteFile(path, image, 0o600))
		file, err := OpenDirect(path, false)
		fixture.Must(t, err)
		defer func() { _ = unix.Close(file.Fd) }()
		r := prober{texts: new(groupTexts), pause: func(time.Duration) {}}
		if took := allocated(func() {
			p := r.content(probe{device: BlockDevice{Name: "disk", Path: path, Size: lvm.MiB}}, file, probe{})
			_ = assemble([]probe{p}, func(string) (bool, error) { return false, nil })
		}); took > 256*lvm.MiB {
			t.Errorf("it takes %s", took)
		}
	})
}

// fixedChecksum sets the right checksum in a metadata area's header.
func fixedChecksum(header []byte) []byte {
	binary.LittleEndian.PutUint32(header, lvmChecksum(header[4:]))
	return header
}
