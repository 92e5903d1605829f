package node

import (
	"fmt"

	"github.com/nodelvm/nodelvm/lvm"
)

// origin is what the tags of a logical volume say about its first format.
type origin struct {
	marked bool // the driver created it with a format mark
	raw    bool // it was created as a raw block volume
	copied bool // it was restored or cloned
}

func originOf(v lvm.Volume, hasSource bool) origin {
	return origin{marked: v.FormatMark != 0, raw: v.Block, copied: hasSource || v.Source != lvm.ID{}}
}

// checkFormat refuses (lvm.KindConflict) to format a device on which nothing is recognized, without a proof that no file system on it was
// ever mounted. The proof is its format mark, or the superblock of a mkfs.xfs that did not end. A volume that has no tag for the mark, because an
// earlier version or an admin created it, may be formatted if it has no remains of a file system either.
func checkFormat(device string, c Content, o origin, kind string) error {
	switch {
	case o.copied:
		return lvm.Errorf(lvm.KindConflict, "device %s was restored or cloned, and contains no file system that the driver recognizes. The driver never formats a copy: if its source never had a file system, create an empty volume instead. %s", device, remedy(device, c.Rest, kind))
	case o.raw:
		return lvm.Errorf(lvm.KindConflict, "device %s was created as a raw block volume, and contains no file system that the driver recognizes. The driver never formats such a volume: only its user knows its content", device)
	case c.Marked || c.Unfinished != "":
		return nil
	case o.marked:
		return lvm.Errorf(lvm.KindConflict, "device %s was in use, and contains nothing that the driver recognizes%s: its beginning is damaged. The driver formats only a volume that was never in use. %s", device, found(c.Rest), remedy(device, c.Rest, kind))
	case c.Rest.Kind != "":
		return lvm.Errorf(lvm.KindConflict, "device %s begins like a new volume%s, so the driver does not format it. %s", device, found(c.Rest), remedy(device, c.Rest, kind))
	}
	return nil
}

// refuseContent returns the error for a device with other content than a file system.
func refuseContent(device string, c Content, o origin, kind string) error {
	what := lvm.Errorf(lvm.KindConflict, "device %s contains %s, so the driver does not format it", device, joinAnd(c.Others))
	if o.marked && !c.Marked || c.Rest.Kind != "" {
		return lvm.Errorf(lvm.KindConflict, "%w. %s", what, remedy(device, c.Rest, kind))
	}
	return lvm.Errorf(lvm.KindConflict, "%w. %s. If the content is not needed, clear the device with wipefs -a %s and zero its first 4 KiB", what, repair(device, c.Rest, kind), device)
}

func found(r Remains) string {
	if r.What == "" {
		return ""
	}
	return ", but it has " + r.What
}

// remedy says how to repair what is on a device, or to start over.
func remedy(device string, r Remains, kind string) string {
	return repair(device, r, kind) + ". To start over without its data, delete its claim"
}

// repair names the command that repairs what was found, or else what the volume is for.
func repair(device string, r Remains, kind string) string {
	if r.Kind != "" {
		kind = r.Kind
	}
	switch kind {
	case "ext4":
		block, size := r.Block, r.BlockSize
		if block == 0 {
			block, size = 32768, 4096
		}
		return fmt.Sprintf("To repair it, copy the device, then run e2fsck -b %d -B %d %s", block, size, device)
	case "xfs":
		return "To repair it, copy the device, then run xfs_repair " + device
	case "btrfs":
		return "To repair it, copy the device, then run btrfs rescue super-recover " + device
	}
	return "To repair it, copy the device, then restore its LUKS header (cryptsetup luksHeaderRestore), or run cryptsetup repair " + device
}
