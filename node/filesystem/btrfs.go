package filesystem

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// The kernel distinguishes btrfs file systems by their UUID, so a clone needs a new UUID before the driver mounts it beside its
// origin. The feature "metadata_uuid" (Linux 5.0) provides that: the superblock gets a new UUID and keeps the old one as that
// of the metadata, which does not change, and neither does an unreplayed log. btrfstune -m does the same, but as a separate
// transaction, which a log does not survive.

// Offsets of the fields in a btrfs superblock (btrfs documentation, "On-disk format").
const (
	btrfsSuperSize    = 4096
	btrfsFSID         = 32  // 16 bytes
	btrfsFlags        = 56  // u64
	btrfsMagic        = 64  // 8 bytes
	btrfsTotal        = 112 // u64, bytes
	btrfsDevices      = 136 // u64
	btrfsSector       = 144 // u32
	btrfsIncompat     = 188 // u64
	btrfsChecksumType = 196 // u16
	btrfsMetadataUUID = 571 // 16 bytes
	uuidSize          = 16

	btrfsHasMetadataUUID = 1 << 10
	btrfsChangingUUID    = 1<<35 | 1<<36 // btrfstune was interrupted
)

// SetUUID gives the btrfs file system on the unmounted device of a copy the UUID that belongs to its logical volume, if it has another one. It
// writes one block, the first superblock: a mount reads only this one, and the next commit writes all the others.
func (Tools) SetUUID(ctx context.Context, device, lvUUID string) error {
	super, _, err := readSuperblock(device, "btrfs")
	if err != nil {
		return err
	}
	changed, err := withUUID(super, btrfsUUID(lvUUID))
	if err != nil || changed == nil {
		return err
	}
	f, err := openUnused(device, os.O_WRONLY|unix.O_SYNC)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(changed, superblocks["btrfs"])
	if err := errors.Join(err, f.Close()); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot give the clone a new file system UUID: %w", err)
	}
	return nil
}

func isBtrfs(super []byte) bool { return string(super[btrfsMagic:][:8]) == "_BHRfS_M" }

// canResizeBtrfs is canResize for a file system on one device. The kernel resizes to no less than 256 MiB (Linux,
// fs/btrfs/ioctl.c): a smaller file system keeps its size until its volume has that size.
func canResizeBtrfs(super []byte, size uint64) bool {
	const least = 256 << 20
	le := binary.LittleEndian
	sector := uint64(le.Uint32(super[btrfsSector:]))
	if !isBtrfs(super) || sector == 0 || le.Uint64(super[btrfsDevices:]) != 1 {
		return false
	}
	return size >= least && size-size%sector > le.Uint64(super[btrfsTotal:])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func btrfsChecksum(super []byte) uint32 {
	return crc32.Checksum(super[btrfsFSID:btrfsSuperSize], castagnoli)
}

// btrfsUUID returns the file system UUID of a restored or cloned volume. It is always the same for one logical volume, so that
// the superblock shows whether the driver has set it.
func btrfsUUID(lvUUID string) (uuid [uuidSize]byte) {
	sum := sha256.Sum256([]byte("nodelvm btrfs copy " + lvUUID))
	copy(uuid[:], sum[:])
	uuid[6] = uuid[6]&0x0f | 0x80 // RFC 9562, version 8 and variant
	uuid[8] = uuid[8]&0x3f | 0x80
	return uuid
}

// withUUID returns the superblock with the UUID, or nil if it already has that UUID. lvm.KindConflict: the superblock does not
// allow it, and only an admin can set the UUID.
func withUUID(super []byte, uuid [uuidSize]byte) ([]byte, error) {
	le := binary.LittleEndian
	refuse := func(why string) ([]byte, error) {
		return nil, lvm.Errorf(lvm.KindConflict, "cannot give the clone the new file system UUID that it needs before it is mounted: its btrfs superblock %s. "+
			"The driver changed nothing. Run btrfstune -u on this node while the volume is not mounted", why)
	}
	switch {
	case !isBtrfs(super):
		return refuse("is missing")
	case le.Uint16(super[btrfsChecksumType:]) != 0:
		return refuse("does not use crc32c checksums")
	case le.Uint32(super) != btrfsChecksum(super):
		return refuse("is damaged: its checksum is wrong")
	case le.Uint64(super[btrfsFlags:])&btrfsChangingUUID != 0:
		return refuse("says that its UUID is being changed")
	case [uuidSize]byte(super[btrfsFSID:]) == uuid:
		return nil, nil
	}
	changed := append([]byte{}, super[:btrfsSuperSize]...)
	if features := le.Uint64(super[btrfsIncompat:]); features&btrfsHasMetadataUUID == 0 {
		copy(changed[btrfsMetadataUUID:][:uuidSize], super[btrfsFSID:])
		le.PutUint64(changed[btrfsIncompat:], features|btrfsHasMetadataUUID)
	}
	copy(changed[btrfsFSID:], uuid[:])
	le.PutUint32(changed, btrfsChecksum(changed))
	return changed, nil
}
