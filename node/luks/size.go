package luks

import (
	"math"

	"github.com/nodelvm/nodelvm/lvm"
)

// HeaderSize is where the data begin on a logical volume, and never changes: sizes of existing volumes are computed with it.
const HeaderSize = 16 * lvm.MiB

// MinDataSize leaves room for the places of superblocks and, between them, the mark.
const MinDataSize = 4 * lvm.MiB

// DeviceSize is the size of the logical volume for a volume of a size: the least number of whole extents that holds the
// header and the data. It fails (lvm.KindOutOfRange) for a size that no logical volume can have.
func DeviceSize(volume, extent lvm.Bytes) (lvm.Bytes, error) {
	if volume < 0 || extent <= 0 || volume > math.MaxInt64-HeaderSize-extent {
		return 0, lvm.Errorf(lvm.KindOutOfRange, "an encrypted volume of %d bytes in extents of %d bytes is impossible", int64(volume), int64(extent))
	}
	need := max(volume, MinDataSize) + HeaderSize
	return (need + extent - 1) / extent * extent, nil
}

// DataSize is the size that a volume offers on a logical volume of a size: 0 if that is too small to be encrypted.
func DataSize(device lvm.Bytes) lvm.Bytes {
	if device < HeaderSize+MinDataSize {
		return 0
	}
	return device - HeaderSize
}

// sectorSize is the unit of encryption. A larger one is faster, but becomes the logical sector of the mapping: the content of a raw block volume
// (partition tables, disk images) depends on it, so there it is the logical volume's own.
func sectorSize(block bool, logical int) int {
	if block && logical == 512 {
		return 512
	}
	return 4096
}
