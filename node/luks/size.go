package luks

import "github.com/nodelvm/nodelvm/lvm"

// HeaderSize is where the data begin on a logical volume.
const HeaderSize = lvm.LUKSHeaderSize

// MinDataSize leaves room for the places of superblocks and, between them, the mark.
const MinDataSize = lvm.LUKSMinDataSize

// DataSize is the size that a volume offers on a logical volume of a size: 0 if that is too small to be encrypted.
func DataSize(device lvm.Bytes) lvm.Bytes {
	return lvm.Class{Encryption: lvm.EncryptionLUKS2}.DataSize(device)
}

// sectorSize is the unit of encryption. A larger one is faster, but becomes the logical sector of the mapping: the content of a raw block volume
// (partition tables, disk images) depends on it, so there it is the logical volume's own.
func sectorSize(block bool, logical int) int {
	if block && logical == 512 {
		return 512
	}
	return 4096
}
