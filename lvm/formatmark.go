package lvm

import (
	"encoding/binary"
	"hash/crc32"
)

// The format mark is a record of the driver on a volume's own device: the volume was never mounted, so the driver may format it. The
// driver writes it before it tags a new volume as ready, and removes it, durably, before the first mount. A tag, which never changes,
// says that the volume had one, and where. So neither the first format nor any later start needs an LVM command for this record, and
// a volume with the tag and without the mark is never formatted, whatever its device shows.

// FormatMarkSize is the size of a mark, a multiple of which is its place.
const FormatMarkSize = 4096

// formatMarkSpare is the end of a device, which mkfs.ext4 and mkfs.xfs clear. A new file system of these types has free space before it.
const formatMarkSpare = 128 * KiB

// FormatMark returns the mark of a logical volume. A copy of the volume has another UUID, so it has no mark. Earlier versions know the same
// words: they remove the mark when they format the volume.
func FormatMark(lvUUID string) []byte {
	mark := make([]byte, FormatMarkSize)
	copy(mark, "nodelvm: mkfs.ext4 of this logical volume has not ended\n"+lvUUID)
	binary.LittleEndian.PutUint32(mark[FormatMarkSize-4:], crc32.Checksum(mark[:FormatMarkSize-4], crc32.MakeTable(crc32.Castagnoli)))
	return mark
}

// FormatMarkOffset returns the place of the mark on a device of a size; 0 if the device is too small for one.
func FormatMarkOffset(size Bytes) Bytes {
	return max(0, (size-formatMarkSpare)/FormatMarkSize*FormatMarkSize-FormatMarkSize)
}

// NeedsFormatMark reports whether the driver may ever format a new volume: not a copy, nor a raw one, unless it is encrypted.
func (v Volume) NeedsFormatMark() bool {
	return v.Source == ID{} && (!v.Block || v.Class.Encryption != EncryptionNone)
}
