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

// TestDuplicateDisk: labels show that two devices have one PV, whoever reads the metadata.
func TestDuplicateDisk(t *testing.T) { inEachMode(t, "empty", testDuplicateDisk) }

func testDuplicateDisk(t *testing.T, node fixture.TestNode, _ *Disks, r lvm.Reader) {
	disks, err := filepath.Glob("testdata/groups/empty/*.gz")
	fixture.Must(t, err)
	node.Add(t, "zcopy", 64<<20, fixture.Unzip(t, disks[0]))
	state, err := r.Read(t.Context())
	fixture.Must(t, err)
	if problem := state.Groups[0].Problem; !strings.Contains(problem, "several devices") || !strings.Contains(problem, "zcopy") || lvm.CheckNoDuplicatePV(state.Groups[0]) == nil || state.CheckComplete() == nil {
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

// TestDivergedCopies: two devices have one PV, and each got another commit, so that their texts differ at one seqno. The labels
// refuse the group before LVM's report could choose a copy.
func TestDivergedCopies(t *testing.T) {
	inEachMode(t, "empty", func(t *testing.T, node fixture.TestNode, _ *Disks, r lvm.Reader) {
		images, err := filepath.Glob("testdata/groups/empty/*.gz")
		fixture.Must(t, err)
		node.Add(t, "zcopy", 64<<20, withOtherText(t, fixture.Unzip(t, images[0])))
		state, err := r.Read(t.Context())
		fixture.Must(t, err)
		if len(state.Groups) != 1 || lvm.CheckWritable(state, state.Groups[0]) == nil || lvm.CheckNoDuplicatePV(state.Groups[0]) == nil || !strings.Contains(state.Groups[0].Problem, "zcopy") || state.CheckComplete() == nil {
			t.Errorf("%+v", state)
		}
	})
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

// TestBlockSizes: a physical volume has the logical block size of its device, whoever reads the metadata.
func TestBlockSizes(t *testing.T) {
	inEachMode(t, "linear", func(t *testing.T, node fixture.TestNode, _ *Disks, r lvm.Reader) {
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
	})
}

// TestDamagedMetadata: metadata that cannot be read on one disk leaves the group incomplete, whoever reads the other disks.
func TestDamagedMetadata(t *testing.T) {
	inEachMode(t, "linear", func(t *testing.T, node fixture.TestNode, _ *Disks, r lvm.Reader) {
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
	})
}

// TestUnreadMetadata: a group with a disk whose metadata cannot be read is incomplete, because the disk may have newer
// metadata.
func TestUnreadMetadata(t *testing.T) {
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/linear")
	alone := func(string) (bool, error) { return false, nil }
	probes := probesOf(node, t)
	whole, err := assemble(probes, alone)
	fixture.Must(t, err)
	probes[0].areas, probes[0].err = nil, errors.New("the checksum of the metadata is wrong")
	torn, err := assemble(probes, alone)
	fixture.Must(t, err)
	probes = append(probesOf(node, t), probesOf(node, t)[0])
	probes[len(probes)-1].device.Path += "-copy"
	doubled, err := assemble(probes, alone)
	fixture.Must(t, err)
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

func TestUnsupportedIsRefused(t *testing.T) {
	text := captured(t, "linear")
	for what, change := range map[string][2]string{
		"status flag of the group":  {`"RESIZEABLE"`, `"RESIZEABLE", "FROM_THE_FUTURE"`},
		"status flag of a volume":   {`"VISIBLE"`, `"INVISIBLE"`},
		"segment type":              {`type = "striped"`, `type = "spiral"`},
		"segment flag":              {`type = "striped"`, `type = "striped+TWISTED"`},
		"format":                    {`format = "lvm2"`, `format = "lvm3"`},
		"version":                   {"version = 1", "version = 2"},
		"extents used twice":        {"start_extent = 0\nextent_count = 4", "start_extent = 0\nextent_count = 5"},
		"segment count":             {"segment_count = 1", "segment_count = 2"},
		"negative number":           {"seqno = ", "seqno = -"},
		"number over all bounds":    {"pe_start = ", "pe_start = 99999999999999999999"},
		"extent size":               {"extent_size = 8192", "extent_size = 0"},
		"more than a disk can have": {"pe_count = ", "pe_count = 999999999999"},
		"no uuid":                   {`id = "`, `id = "x`},
		"unknown syntax":            {"max_lv = 0", "max_lv = @0"},
	} {
		changed := strings.Replace(text, change[0], change[1], 1)
		if changed == text {
			t.Errorf("%s: %q is not in the text", what, change[0])
		}
		if _, err := importGroup(changed); !errors.Is(err, errUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := importGroup(text); err != nil {
		t.Errorf("the text itself: %v", err)
	}
}
