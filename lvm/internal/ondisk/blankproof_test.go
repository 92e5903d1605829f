package ondisk

import (
	"context"
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// fileDisk is a disk in a file of so many bytes: content, then zeroes.
func fileDisk(t *testing.T, size lvm.Bytes, content []byte) Disk {
	t.Helper()
	name, path := fixture.DiskFile(t, size, content)
	d := Disk{BlockDevice: BlockDevice{Name: name, Path: path, Size: size, Disk: true, Inode: fixture.ListDisk(t, name)}}
	if p := (prober{positions: fileDisks(t), texts: &groupTexts{}}).probe(d.BlockDevice, probe{}); p.label != nil {
		d.pv = &p
	}
	return d
}

// fileDisks are the positions of a test's disks in sysfs.
func fileDisks(t *testing.T) Positions { return Positions{Sys: fixture.DiskSys(t)} }

func pokeDisk(d Disk, t *testing.T, at int64, data string) {
	t.Helper()
	f, err := os.OpenFile(d.Path, os.O_WRONLY, 0)
	fixture.Must(t, err)
	_, err = f.WriteAt([]byte(data), at)
	fixture.Must(t, err)
	fixture.Must(t, f.Close())
}

// gripDisk opens a disk that is a file exclusively.
func gripDisk(d Disk, t *testing.T) *exclusiveDevice {
	t.Helper()
	f, err := OpenDirect(d.Path, false)
	fixture.Must(t, err)
	g := &exclusiveDevice{os.NewFile(uintptr(f.Fd), d.Path), f}
	t.Cleanup(g.Release)
	return g
}

// nothingKnown returns what blkid and wipefs return for unknown content.
func nothingKnown(context.Context, string) ([]string, error) { return nil, nil }

// TestContent: content that no tool knows is found at both ends, and where the first partition of a removed table begins.
func TestContent(t *testing.T) {
	const size = 16 * lvm.MiB
	if why := gripDisk(fileDisk(t, size, nil), t).Content(t.Context(), fileDisk(t, size, nil), nothingKnown); why != "" {
		t.Errorf("a blank disk: %s", why)
	}
	for name, at := range map[string]int64{
		"in front":                        777,
		"ext4 in the first partition":     1<<20 + 1080,
		"a file system of its own at 1 M": 1 << 20,
		"at the end":                      int64(size) - 1,
	} {
		d := fileDisk(t, size, nil)
		pokeDisk(d, t, at, "x")
		if why := gripDisk(d, t).Content(t.Context(), d, nothingKnown); !strings.Contains(why, "data of an unknown kind") || !strings.Contains(why, "blkdiscard -z ") {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// markedPV is the head of a physical volume as the driver's pvcreate writes it; flags are those of its metadata area.
func markedPV(flags uint32) []byte {
	const areaAt, areaSize = 4096, 2<<20 - 4096
	head := make([]byte, 8192)
	sector := head[lvm.SectorSize : 2*lvm.SectorSize]
	copy(sector, "LABELONE")
	binary.LittleEndian.PutUint64(sector[8:], 1)
	binary.LittleEndian.PutUint32(sector[20:], 32)
	copy(sector[24:], "LVM2 001")
	pv := sector[32:]
	copy(pv, strings.ReplaceAll(NewPVUUID(), "-", ""))
	for at, value := range map[int]uint64{32: 16 << 20, 40: 2 << 20, 72: areaAt, 80: areaSize} {
		binary.LittleEndian.PutUint64(pv[at:], value)
	}
	binary.LittleEndian.PutUint32(sector[16:], lvmChecksum(sector[20:]))
	area := head[areaAt : areaAt+mdaHeaderSize]
	copy(area[4:], mdaMagic)
	binary.LittleEndian.PutUint32(area[20:], 1)
	binary.LittleEndian.PutUint64(area[24:], areaAt)
	binary.LittleEndian.PutUint64(area[32:], areaSize)
	binary.LittleEndian.PutUint32(area[60:], flags)
	binary.LittleEndian.PutUint32(area, lvmChecksum(area[4:]))
	return head
}

// TestUnfinished: the driver uses its own physical volume again only if no other write to it was possible.
func TestUnfinished(t *testing.T) {
	const size = 16 * lvm.MiB
	fresh := fileDisk(t, size, markedPV(0))
	if fresh.pv == nil || !gripDisk(fresh, t).Unfinished(fresh, "vg", nil) {
		t.Fatalf("what an interrupted run has left is not taken up: %+v", fresh.pv)
	}
	for name, at := range map[string]int64{
		"a boot sector":                   100,
		"beside the label":                1500,
		"in the ring of metadata":         1 << 19,
		"where a first partition begins":  1 << 20,
		"a software RAID's header behind": int64(size) - 8192,
	} {
		d := fileDisk(t, size, markedPV(0))
		pokeDisk(d, t, at, "x")
		if d.pv == nil || gripDisk(d, t).Unfinished(d, "vg", nil) {
			t.Errorf("%s: it is taken for unused", name)
		}
	}
	// pvchange --metadataignore y: its group's metadata is on other disks, which may be missing.
	ignored := fileDisk(t, size, markedPV(ignoredArea))
	if ignored.pv == nil || gripDisk(ignored, t).Unfinished(ignored, "vg", nil) {
		t.Error("a member without metadata of its own is taken for unused")
	}
}

// TestForeignPV: no error advises to remove a physical volume that is in a group.
func TestForeignPV(t *testing.T) {
	n := fixture.NewTestNode(t)
	n.Plug(t, "testdata/groups/linear")
	seen := 0
	for _, p := range probesOf(n, t) {
		if p.label == nil {
			continue
		}
		seen++
		if words := p.words(p.device.Path); strings.Contains(words, "pvremove") || !strings.Contains(words, "volume group ") {
			t.Errorf("%s: %s", p.device.Name, words)
		}
		p.areas, p.err = nil, errUnresponsive
		if words := p.words(p.device.Path); strings.Contains(words, "pvremove") {
			t.Errorf("%s, damaged: %s", p.device.Name, words)
		}
		p.err = nil
		if words := p.words("/dev/x"); !strings.Contains(words, "in no group here") || !strings.Contains(words, "pvremove /dev/x") {
			t.Errorf("%s, an orphan: %s", p.device.Name, words)
		}
	}
	if seen == 0 {
		t.Error("no physical volume was looked at")
	}
}
