package ondisk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/nodelvm/nodelvm/lvm"
)

// The on-disk format of LVM2's labels and metadata areas. Source: lvm2, lib/label/label.h and lib/format_text/layout.h; all
// numbers are little endian.
const (
	labelSectors  = 4 // the label is in one of the first four sectors
	mdaHeaderSize = 512
	mdaMagic      = " LVM2 x[5A%r0N*>"
	crcInitial    = 0xf597a6cf
	ignoredArea   = 1 // flag of a raw location: the area is ignored (pvchange --metadataignore y)
	maxAreas      = 2 // LVM writes one or two metadata areas, and one data area
)

// label is the content of a PV's label sector.
type label struct {
	uuid  string    // with dashes
	size  lvm.Bytes // of the device when LVM created the PV
	areas []span    // metadata areas
}

// span is a range of bytes on a device.
type span struct{ offset, size int64 }

// lvmChecksum is LVM's CRC-32: IEEE polynomial, reflected, with another initial value and no final inversion.
func lvmChecksum(p []byte) uint32 {
	return ^crc32.Update(^uint32(crcInitial), crc32.IEEETable, p)
}

// findLabel finds an LVM2 label in the first sectors of a device. It returns nil, nil if there is none, and an error for an
// invalid one.
func findLabel(head []byte) (*label, error) {
	for n := 0; n < labelSectors && (n+1)*lvm.SectorSize <= len(head); n++ {
		sector := head[n*lvm.SectorSize : (n+1)*lvm.SectorSize]
		if !bytes.Equal(sector[:8], []byte("LABELONE")) || binary.LittleEndian.Uint64(sector[8:]) != uint64(n) {
			continue
		}
		if string(sector[24:32]) != "LVM2 001" {
			return nil, fmt.Errorf("label of unknown type %q", sector[24:32])
		}
		if lvmChecksum(sector[20:]) != binary.LittleEndian.Uint32(sector[16:]) {
			return nil, fmt.Errorf("the checksum of the LVM label in sector %d is wrong", n)
		}
		return decodePVHeader(sector, binary.LittleEndian.Uint32(sector[20:]))
	}
	return nil, nil
}

// decodePVHeader decodes the PV header, offset bytes into the label's sector.
func decodePVHeader(sector []byte, offset uint32) (*label, error) {
	if offset < 32 || offset > lvm.SectorSize-40 {
		return nil, fmt.Errorf("the LVM label puts its PV header at byte %d, outside of its sector", offset)
	}
	p := sector[offset:]
	l := &label{uuid: Dashed(string(p[:32])), size: lvm.Bytes(binary.LittleEndian.Uint64(p[32:]))}
	if !IsUUID(l.uuid) {
		return nil, fmt.Errorf("the LVM label carries no UUID but %q", p[:32])
	}
	_, p, err := parseSpans(p[40:]) // data areas: the metadata text repeats them as pe_start
	if err != nil {
		return nil, err
	}
	l.areas, _, err = parseSpans(p)
	return l, err
}

// parseSpans decodes (offset, size) pairs up to the pair of zeroes that ends them, and returns what follows.
func parseSpans(p []byte) (spans []span, rest []byte, err error) {
	for len(p) >= 16 {
		s := span{int64(binary.LittleEndian.Uint64(p)), int64(binary.LittleEndian.Uint64(p[8:]))}
		p = p[16:]
		if s.offset == 0 {
			return spans, p, nil
		}
		if len(spans) == maxAreas || s.offset < 0 || s.size < 0 {
			break
		}
		spans = append(spans, s)
	}
	return nil, nil, fmt.Errorf("the LVM label's list of areas is damaged")
}

// areaHeader is the header of one metadata area.
type areaHeader struct {
	size     int64 // of the whole area, including the header
	ignored  bool
	text     span // of the committed text, offset from the area's start; size 0: no group yet
	checksum uint32
}

// decodeAreaHeader decodes the first 512 bytes of the metadata area at where.
func decodeAreaHeader(p []byte, where span) (areaHeader, error) {
	switch {
	case string(p[4:20]) != mdaMagic:
		return areaHeader{}, fmt.Errorf("the metadata area at byte %d has no LVM header", where.offset)
	case lvmChecksum(p[4:mdaHeaderSize]) != binary.LittleEndian.Uint32(p):
		return areaHeader{}, fmt.Errorf("the checksum of the metadata area's header at byte %d is wrong", where.offset)
	case binary.LittleEndian.Uint32(p[20:]) != 1:
		return areaHeader{}, fmt.Errorf("the metadata area at byte %d is of unknown version %d", where.offset, binary.LittleEndian.Uint32(p[20:]))
	case int64(binary.LittleEndian.Uint64(p[24:])) != where.offset:
		return areaHeader{}, fmt.Errorf("the header of the metadata area at byte %d records another start", where.offset)
	}
	h := areaHeader{
		size:     int64(binary.LittleEndian.Uint64(p[32:])),
		text:     span{int64(binary.LittleEndian.Uint64(p[40:])), int64(binary.LittleEndian.Uint64(p[48:]))},
		checksum: binary.LittleEndian.Uint32(p[56:]),
		ignored:  binary.LittleEndian.Uint32(p[60:])&ignoredArea != 0,
	}
	if h.text.offset == 0 {
		h.text.size = 0
	}
	bad := h.size < 2*mdaHeaderSize || h.text.size < 0 || h.text.size > h.size-mdaHeaderSize
	if bad || h.text.size > 0 && (h.text.offset < mdaHeaderSize || h.text.offset >= h.size) {
		return areaHeader{}, fmt.Errorf("the metadata area at byte %d is damaged: text of %d bytes at %d in an area of %d bytes",
			where.offset, h.text.size, h.text.offset, h.size)
	}
	return h, nil
}

// pieces returns the ranges of the text on the device: one, or two if the text wraps at the end of the ring.
func (h areaHeader) pieces(start int64) []span {
	room := h.size - h.text.offset
	if h.text.size <= room {
		return []span{{start + h.text.offset, h.text.size}}
	}
	return []span{{start + h.text.offset, room}, {start + mdaHeaderSize, h.text.size - room}}
}

// usable returns how many bytes of text LVM can write into an area, at most maxText. LVM keeps the old text until it has
// committed the new one, and a sector more for rounding (lvm2, lib/format_text/format-text.c, read_metadata_location_summary).
func usable(areaSize int64) lvm.Bytes {
	return min(maxText, max(0, lvm.Bytes((areaSize-mdaHeaderSize)/2-lvm.SectorSize)))
}

// free returns by how much the text can grow, in whole sectors like vgs -o vg_mda_free.
func (h areaHeader) free() lvm.Bytes {
	return max(0, usable(h.size)-lvm.Bytes(h.text.size)) / lvm.SectorSize * lvm.SectorSize
}

// Dashed formats a UUID of 32 characters in LVM's notation, 6-4-4-4-4-4-6.
func Dashed(raw string) string {
	if len(raw) != 32 {
		return raw
	}
	return raw[:6] + "-" + raw[6:10] + "-" + raw[10:14] + "-" + raw[14:18] + "-" + raw[18:22] + "-" + raw[22:26] + "-" + raw[26:]
}

// IsUUID reports whether s is a UUID in LVM's notation. LVM's alphabet has ! and # besides letters and digits (lvm2,
// lib/uuid/uuid.c), but LVM never writes the two.
func IsUUID(s string) bool {
	if len(s) != 38 {
		return false
	}
	for i := range len(s) {
		switch i {
		case 6, 11, 16, 21, 26, 31:
			if s[i] != '-' {
				return false
			}
		default:
			if !lvm.IsAlnum(s[i]) {
				return false
			}
		}
	}
	return true
}
