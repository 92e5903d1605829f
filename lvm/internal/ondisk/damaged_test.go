package ondisk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestDuplicateDisk: labels show that two devices have one PV.
func TestDuplicateDisk(t *testing.T) {
	node, r := plugged(t, "empty")
	disks, err := filepath.Glob("testdata/groups/empty/*.gz")
	fixture.Must(t, err)
	node.Add(t, "zcopy", 64<<20, fixture.Unzip(t, disks[0]))
	state, err := r.Read(t.Context())
	fixture.Must(t, err)
	if problem := state.Groups[0].Problem; !strings.Contains(problem, "several devices") || !strings.Contains(problem, "zcopy") || !strings.Contains(problem, "multipathd") || lvm.CheckNoDuplicatePV(state.Groups[0]) == nil || state.CheckComplete() == nil {
		t.Errorf("problem %q", problem)
	}
	node.Attribute(t, "zcopy", "holders/md0/x", "") // a leg of a software RAID is no second PV
	node.Attribute(t, "md0", "size", "0\n")
	state, err = r.Read(t.Context())
	fixture.Must(t, err)
	if problem := state.Groups[0].Problem; problem != "" {
		t.Errorf("the leg of a RAID device counts: %q", problem)
	}
}

// TestDivergedCopies: two devices have one PV, and each got another commit, so that their texts differ at one seqno.
func TestDivergedCopies(t *testing.T) {
	node, r := plugged(t, "empty")
	images, err := filepath.Glob("testdata/groups/empty/*.gz")
	fixture.Must(t, err)
	node.Add(t, "zcopy", 64<<20, withOtherText(t, fixture.Unzip(t, images[0])))
	state, err := r.Read(t.Context())
	fixture.Must(t, err)
	if len(state.Groups) != 1 || lvm.CheckWritable(state, state.Groups[0]) == nil || lvm.CheckNoDuplicatePV(state.Groups[0]) == nil || !strings.Contains(state.Groups[0].Problem, "zcopy") || state.CheckComplete() == nil {
		t.Errorf("%+v", state)
	}
}

// withOtherText returns a disk whose committed metadata differs, with a right checksum and the same seqno.
func withOtherText(t *testing.T, image []byte) []byte {
	t.Helper()
	image = slices.Clone(image)
	label, err := findLabel(image[:headSize])
	fixture.Must(t, err)
	where := label.areas[0]
	h, err := decodeAreaHeader(image[where.offset:], where)
	fixture.Must(t, err)
	text := image[where.offset+h.text.offset:][:h.text.size]
	at := bytes.Index(text, []byte("max_lv = 0"))
	if at < 0 {
		t.Fatal("the text has no max_lv")
	}
	text[at+len("max_lv = ")] = '7'
	header := image[where.offset:][:mdaHeaderSize]
	binary.LittleEndian.PutUint32(header[40+16:], lvmChecksum(text))
	binary.LittleEndian.PutUint32(header, lvmChecksum(header[4:]))
	return image
}

// TestBlockSizes: a physical volume has the logical block size of its device.
func TestBlockSizes(t *testing.T) {
	node, r := plugged(t, "linear")
	node.Attribute(t, "loop0", "queue/logical_block_size", "4096\n")
	state, err := r.Read(t.Context())
	fixture.Must(t, err)
	for _, pv := range state.Groups[0].PVs {
		if is := pv.BlockSize == 4096; is != strings.HasSuffix(pv.Device, "loop0") {
			t.Errorf("%s: %d", pv.Device, pv.BlockSize)
		}
	}
	if sizes := state.Groups[0].BlockSizes(); len(sizes) != 2 {
		t.Errorf("%v", sizes)
	}
}

// TestDamagedMetadata: metadata that cannot be read on one disk leaves the group incomplete
func TestDamagedMetadata(t *testing.T) {
	node, r := plugged(t, "linear")
	entries, err := os.ReadDir(node.Dev)
	fixture.Must(t, err)
	f, err := os.OpenFile(filepath.Join(node.Dev, entries[0].Name()), os.O_WRONLY, 0)
	fixture.Must(t, err)
	_, err = f.WriteAt(make([]byte, 100<<10), 4096+mdaHeaderSize)
	fixture.Must(t, errors.Join(err, f.Close()))
	state, err := r.Read(t.Context())
	fixture.Must(t, err)
	if why := state.Groups[0].IncompleteReason(); !strings.Contains(why, entries[0].Name()+" cannot be read") || len(state.UnreadDevices) != 1 {
		t.Errorf("%q, unread %q", why, state.UnreadDevices)
	}
}

// TestUnreadMetadata: a group with a disk whose metadata cannot be read is incomplete, because the disk may have newer
// metadata.
func TestUnreadMetadata(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/linear")
	alone := func(string) (bool, error) { return false, nil }
	probes := probesOf(node, t)
	whole := assemble(probes, alone)
	probes[0].areas, probes[0].err = nil, errors.New("the checksum of the metadata is wrong")
	torn := assemble(probes, alone)
	probes = append(probesOf(node, t), probesOf(node, t)[0])
	probes[len(probes)-1].device.Path += "-copy"
	doubled := assemble(probes, alone)
	for name, test := range map[string]struct {
		state lvm.State
		why   string
	}{"whole": {whole, ""}, "torn": {torn, "cannot be read"}, "doubled": {doubled, "-copy"}} {
		if why := test.state.Groups[0].IncompleteReason(); (why == "") != (test.why == "") || !strings.Contains(why, test.why) {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestShrunkenDisk(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/empty")
	entries, err := os.ReadDir(node.Dev)
	fixture.Must(t, err)
	node.Attribute(t, entries[0].Name(), "size", fmt.Sprintln(32<<20/lvm.SectorSize))
	state, err := disksOf(node).Read(context.Background())
	fixture.Must(t, err)
	if problem := state.Groups[0].Problem; !strings.Contains(problem, "33554432 bytes") {
		t.Errorf("problem %q", problem)
	}
}

func TestDevicesThatAreNoPVs(t *testing.T) {
	node := fixture.NewTestNode(t)
	disks, err := filepath.Glob("testdata/groups/empty/*.gz")
	fixture.Must(t, err)
	image := fixture.Unzip(t, disks[0])
	node.Add(t, "dm-0", 64<<20, image)
	node.Attribute(t, "dm-0", "dm/uuid", "LVM-abc\n")
	node.Add(t, "sr0", 64<<20, image)
	node.Attribute(t, "sr0", "uevent", "MAJOR=11\nMINOR=0\nDEVNAME=sr0\nDEVTYPE=disk\n")
	node.Add(t, "tiny", 1<<20, image)
	partitioned := append([]byte(nil), image...)
	partitioned[510], partitioned[511], partitioned[446+12] = 0x55, 0xaa, 1
	node.Add(t, "sda", 64<<20, partitioned)
	node.Add(t, "sdb", 64<<20, nil)
	node.Attribute(t, "loop0", "size", "0\n")
	state, err := disksOf(node).Read(context.Background())
	fixture.Must(t, err)
	if len(state.Groups)+len(state.UnreadDevices) > 0 {
		t.Errorf("%+v", state)
	}
}

// TestDamagedDisk: a reading of a disk with one flipped byte is the same, none, or an error, but never different.
func TestDamagedDisk(t *testing.T) {
	disks, err := filepath.Glob("testdata/groups/empty/*.gz")
	fixture.Must(t, err)
	image := fixture.Unzip(t, disks[0])
	node := fixture.NewTestNode(t)
	node.Add(t, "sda", 64<<20, image)
	good, err := disksOf(node).Read(context.Background())
	fixture.Must(t, err)
	noticed := 0
	for _, at := range []int{512, 520, 530, 545, 560, 4096, 4100, 4120, 4128, 4136, 4144, 4152, 4608, 4700, 5000, 9999} {
		bad := append([]byte(nil), image...)
		bad[at] ^= 0x10
		node.Add(t, "sda", 64<<20, bad)
		got, err := disksOf(node).Read(context.Background())
		if err != nil || len(got.Groups) == 0 {
			noticed++
			continue
		}
		if diff := cmp.Diff(good, got); diff != "" {
			t.Errorf("byte %d changed the reading: %s", at, diff)
		}
	}
	if noticed < 10 {
		t.Errorf("only %d damages were noticed", noticed)
	}
}

// TestUnknownMetadata: what the reader does not know costs no more than necessary, and nothing changes a group that it cannot read.
func TestUnknownMetadata(t *testing.T) {
	const (
		opaque     = "a logical volume of unknown structure"
		closed     = "a group that nothing changes"
		unreadable = "a group whose logical volumes are unknown"
		unknown    = "no group"
	)
	text := captured(t, "linear")
	whole, err := importGroup(text)
	fixture.Must(t, err)
	for what, c := range map[string][3]string{
		"status flag of the group":  {`"RESIZEABLE"`, `"RESIZEABLE", "FROM_THE_FUTURE"`, closed},
		"status flag of a volume":   {`"VISIBLE"`, `"VISIBLE", "INVISIBLE"`, closed},
		"status flag of a disk":     {`"ALLOCATABLE"`, `"ALLOCATABLE", "SHINGLED"`, closed},
		"segment type":              {`type = "striped"`, `type = "spiral"`, opaque},
		"segment flag":              {`type = "striped"`, `type = "striped+TWISTED"`, opaque},
		"format":                    {`format = "lvm2"`, `format = "lvm3"`, unreadable},
		"version":                   {"version = 1", "version = 2", unknown},
		"extents used twice":        {"start_extent = 0\nextent_count = 4", "start_extent = 0\nextent_count = 5", unreadable},
		"segment count":             {"segment_count = 1", "segment_count = 2", unreadable},
		"negative number":           {"seqno = ", "seqno = -", unreadable},
		"number over all bounds":    {"pe_start = ", "pe_start = 99999999999999999999", unknown},
		"extent size":               {"extent_size = 8192", "extent_size = 0", unreadable},
		"more than a disk can have": {"pe_count = ", "pe_count = 999999999999", unreadable},
		"no uuid":                   {`id = "`, `id = "x`, unknown},
		"unknown syntax":            {"max_lv = 0", "max_lv = @0", unknown},
	} {
		changed := strings.Replace(text, c[0], c[1], 1)
		if changed == text {
			t.Errorf("%s: %q is not in the text", what, c[0])
		}
		im, err := importGroup(changed)
		if (err != nil) != (c[2] == unknown) {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil {
			continue
		}
		g, lvs := im.group, len(im.group.LVs)
		if im.restrictions.closed() != (c[2] != opaque) || (lvs == 0) != (c[2] == unreadable) || (g.IncompleteReason() != "") != (c[2] == unreadable) {
			t.Errorf("%s: closed %v, %d volumes, incomplete: %s", what, im.restrictions.closed(), lvs, g.IncompleteReason())
		}
		if c[2] == opaque && (lvs != len(whole.group.LVs) || g.FreeExtents() >= whole.group.FreeExtents()) {
			t.Errorf("%s: %d volumes, %d free extents of %d", what, lvs, g.FreeExtents(), whole.group.FreeExtents())
		}
		g.Closed = im.restrictions.closed()
		direct, report := lvm.State{Groups: []lvm.Group{g}}, lvm.State{Groups: []lvm.Group{whole.group}}
		if found := compareStates(direct, report, direct); len(found.differences) > 0 {
			t.Errorf("%s: LVM knows it, and the readings differ: %v", what, found.differences)
		}
	}
}

// TestOpaqueOnUnseenDisk: a segment of an unknown type can name its disk in a way that the reader does not see. The comparison with LVM's
// report finds that the disk's extents are not free.
func TestOpaqueOnUnseenDisk(t *testing.T) {
	whole, err := importGroup(captured(t, "linear"))
	fixture.Must(t, err)
	im, err := importGroup(strings.NewReplacer(`type = "striped"`, `type = "spiral"`, "stripes = [", "turns {\nstripes = [", "]\n}", "]\n}\n}").Replace(captured(t, "linear")))
	fixture.Must(t, err)
	if im.group.FreeExtents() <= whole.group.FreeExtents() {
		t.Fatalf("%d of %d extents are free", im.group.FreeExtents(), whole.group.FreeExtents())
	}
	direct, report := lvm.State{Groups: []lvm.Group{im.group}}, lvm.State{Groups: []lvm.Group{whole.group}}
	if found := compareStates(direct, report, direct); !strings.Contains(found.differences[im.group.UUID], "Free") {
		t.Errorf("%v", found.differences)
	}
}

// TestUnreadableGroup: a group that cannot be read is not absent and is not changed; its disks are known, so that LVM can activate its volumes.
// A text that does not even say whose it is makes its device unreadable.
func TestUnreadableGroup(t *testing.T) {
	for from, to := range map[string]string{"segment_count = 1": "segment_count = 2", "extent_size = 8192": "extent_size = 0", "max_lv = 0": "max_lv = @0"} {
		node, _ := plugged(t, "linear")
		probes := probesOf(node, t)
		for i := range probes {
			probes[i].areas[0].text = &groupText{text: strings.Replace(probes[i].areas[0].text.text, from, to, 1)}
			probes[i].areas = append(probes[i].areas, probes[i].areas[0])
		}
		s := assemble(probes, func(string) (bool, error) { return false, nil })
		if s.CheckComplete() == nil {
			t.Errorf("%s: the reading is complete: %+v", to, s)
		}
		if to == "max_lv = @0" {
			if len(s.Groups) > 0 || len(s.UnreadDevices) != len(probes) || len(s.Unlabeled) != len(probes) {
				t.Errorf("%s: %+v", to, s)
			}
			continue
		}
		g := s.Groups[0]
		if lvm.CheckWritable(s, g) == nil || !g.Closed || !strings.Contains(g.Problem, "cannot read its metadata") || len(g.PVs) != len(probes) || g.PVs[0].Device == "" {
			t.Errorf("%s: %+v", to, g)
		}
		if _, _, _, err := s.FindVolume(lvm.ID{VG: g.UUID, LV: "pvc-0f0e"}); lvm.KindOf(err) != lvm.KindBusy {
			t.Errorf("%s: a volume of it: %v", to, err)
		}
	}
}

// TestUnresponsiveLeg: a leg of a RAID device, or a path of a multipath device, that does not answer is reported, whether it ever did or not.
// The physical volume is on the device above it, so the reading is complete.
func TestUnresponsiveLeg(t *testing.T) {
	for _, answered := range []bool{true, false} {
		node, _ := plugged(t, "linear")
		probes := probesOf(node, t)
		leg := probe{device: BlockDevice{Name: "sdz", Path: "/dev/sdz"}, err: errUnresponsive}
		if answered {
			leg.label, leg.areas = probes[0].label, probes[0].areas
		}
		s := assemble(append(probes, leg), func(name string) (bool, error) { return name == "sdz", nil })
		if !slices.Equal(s.Unresponsive, []string{"/dev/sdz"}) || s.CheckComplete() != nil || s.Groups[0].Problem != "" {
			t.Errorf("answered before: %v: %+v", answered, s)
		}
	}
}
