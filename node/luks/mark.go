package luks

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// Mark is a record of the driver on the logical volume itself. It survives every crash, and needs no LVM command.
type Mark int

const (
	MarkNone       Mark = iota
	MarkFormatting      // the volume was never in use: the driver may format it
	MarkFormatted       // the volume was formatted: a missing header is a lost one
	MarkErased          // the key slots are destroyed, or are being destroyed
)

// A mark fits into one sector of any disk, so a write of it is atomic. luksFormat zeroes all before the data, so MarkFormatting
// is in the data area, where no superblock lies. The others are between the key slots and the data.
const (
	formatMarkOffset = lvm.LUKSHeaderSize + 768*lvm.KiB
	stateMarkOffset  = lvm.LUKSHeaderSize - lvm.MiB
	markBlock        = 4096 // zero after the mark
	markSize         = 512
)

var markWords = map[Mark]string{
	MarkFormatting: "nodelvm: luksFormat of this logical volume has not ended\n",
	MarkFormatted:  "nodelvm: this logical volume is formatted with LUKS2\n",
	MarkErased:     "nodelvm: the key slots of this logical volume are destroyed\n",
}

func (m Mark) offset() lvm.Bytes {
	if m == MarkFormatting {
		return formatMarkOffset
	}
	return stateMarkOffset
}

// encodeMark returns the block of a mark for a logical volume; that of MarkNone is zero.
func encodeMark(m Mark, uuid string) []byte {
	block := make([]byte, markBlock)
	if words, is := markWords[m]; is {
		copy(block, words+uuid)
		binary.LittleEndian.PutUint32(block[markSize-4:], crc32.Checksum(block[:markSize-4], crc32.MakeTable(crc32.Castagnoli)))
	}
	return block
}

// decodeMarks decodes the blocks at both places. An erase mark takes precedence; then an unfinished format, which supersedes an
// earlier one.
func decodeMarks(format, state []byte, uuid string) Mark {
	last := decodeMark(state, uuid)
	if first := decodeMark(format, uuid); first == MarkFormatting && last != MarkErased {
		return first
	}
	return last
}

// decodeMark ignores the mark of another logical volume, from the source of a copy or from an earlier use of the disk.
func decodeMark(block []byte, uuid string) Mark {
	for m := range markWords {
		if len(block) >= markSize && bytes.Equal(block[:markSize], encodeMark(m, uuid)[:markSize]) {
			return m
		}
	}
	return MarkNone
}

// isFormatMark reports whether a block is the format mark of any logical volume.
func isFormatMark(block []byte) bool {
	text, is := strings.CutPrefix(string(block), markWords[MarkFormatting])
	if !is {
		return false
	}
	uuid, _, _ := strings.Cut(text, "\x00")
	return decodeMark(block, uuid) == MarkFormatting
}
