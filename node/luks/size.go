package luks

import "github.com/nodelvm/nodelvm/lvm"

// HeaderSize is the offset of the data on a logical volume.
const HeaderSize = lvm.LUKSHeaderSize

// MinDataSize has space for the places of superblocks and, between them, the mark.
const MinDataSize = lvm.LUKSMinDataSize

// DataSize returns the size of the volume on a logical volume of a size; 0 if that is too small for encryption.
func DataSize(device lvm.Bytes) lvm.Bytes {
	return lvm.Class{Encryption: lvm.EncryptionLUKS2}.DataSize(device)
}

// sectorSize returns the unit of encryption. A larger one is faster, but becomes the logical sector of the mapping. The content
// of a raw block volume (partition tables, disk images) depends on the logical sector, so such a volume keeps that of the logical
// volume.
func sectorSize(block bool, logical int) int {
	if block && logical == 512 {
		return 512
	}
	return 4096
}
