package filesystem

import (
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// Content is the result of the checks of a device: blkid(8) with unrestricted probing, wipefs(8), the first 4 KiB, which lvcreate zeroes
// (lvcreate(8), --zero), the format mark, and the copies of superblocks. The blocks after the first 4 KiB need not be zero: a volume of a
// class with wipe "none" may show older data there.
type Content struct {
	Type       string   // of the file system; "" if blkid is not sure of one.
	Others     []string // descriptions of all other findings.
	Unfinished string   // the type of a file system whose mkfs was interrupted, with proof that it never held data.
	Marked     bool     // the device has the format mark: no file system on it was ever mounted
	Rest       Remains  // of a file system that nothing recognizes, on a device without the mark
	Mounted    bool     // the device is mounted already; the caller of Probe knows that
}

// Blank reports whether blkid, wipefs and the first 4 KiB show nothing. That alone does not allow a format.
func (c Content) Blank() bool { return c.Type == "" && len(c.Others) == 0 && c.Unfinished == "" }

// describe names all findings.
func (c Content) describe() string {
	var found []string
	if c.Type != "" {
		found = append(found, "a file system of type "+c.Type)
	}
	if c.Unfinished != "" {
		found = append(found, "the beginning of a file system of type "+c.Unfinished)
	}
	if found = append(found, c.Others...); len(found) == 0 {
		return "a mounted file system"
	}
	return joinAnd(found)
}

func joinAnd(list []string) string {
	text := list[0]
	for i, w := range list[1:] {
		if i == len(list)-2 {
			text += " and " + w
		} else {
			text += ", " + w
		}
	}
	return text
}

// Origin is what the tags of a logical volume say about its first format.
type Origin struct {
	marked bool // the driver created it with a format mark
	raw    bool // it was created as a raw block volume
	copied bool // it was restored or cloned
}

// OriginOf reads the tags of a volume. hasSource: its attributes say that it was restored or cloned.
func OriginOf(v lvm.Volume, hasSource bool) Origin {
	return Origin{marked: v.FormatMark != 0, raw: v.Block, copied: hasSource || v.Source != lvm.ID{}}
}

// Action is how the driver turns the content of a device into a mounted file system.
type Action int

const (
	ActMount  Action = iota // Mount it: its device is mounted elsewhere on this node.
	ActCheck                // Check it, then mount it.
	ActFormat               // Create it, then mount it.
)

// PlanContent decides how the driver turns the device's content into a file system of the requested type. lvm.KindInvalid: the device is too small;
// lvm.KindConflict: it holds other content, or may have been in use.
func PlanContent(device string, c Content, o Origin, fsType string, size lvm.Bytes) (Action, error) {
	empty := c.Blank() || c.Unfinished != ""
	switch {
	case empty && size < minimumSizes[fsType]:
		return 0, lvm.Errorf(lvm.KindInvalid, "the volume has %s, but a file system of type %s needs at least %s: request more, or use ext4", size, fsType, minimumSizes[fsType])
	case empty:
		return ActFormat, checkFormat(device, c, o, fsType)
	case len(c.Others) > 0:
		return 0, refuseContent(device, c, o, fsType)
	case !mountableAs(fsType, c.Type):
		return 0, lvm.Errorf(lvm.KindConflict, "device %s contains a file system of type %s instead of %s, so the driver does not format it", device, c.Type, fsType)
	case c.Mounted: // fsck refuses a mounted device, and the driver checked it before that mount
		return ActMount, nil
	}
	return ActCheck, nil
}

// mountableAs reports whether a file system that blkid found can be mounted as fsType. blkid reports an ext4 without any ext4
// feature as ext3 or ext2: one of an adopted volume, or one that was created with these features disabled (mkfsOptions).
func mountableAs(fsType, found string) bool {
	return found == fsType || fsType == "ext4" && slices.Contains([]string{"ext3", "ext2"}, found)
}

// checkFormat refuses (lvm.KindConflict) to format a device on which nothing is recognized, without a proof that no file system on it was
// ever mounted. The proof is its format mark, or the superblock of a mkfs.xfs that did not end. A volume that has no tag for the mark, because an
// admin created it, may be formatted if it has no remains of a file system either.
func checkFormat(device string, c Content, o Origin, kind string) error {
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

// CheckBlank refuses (lvm.KindConflict) a logical volume that luksFormat may not overwrite: one that is mounted, has content, or may have
// been in use. A raw volume may be formatted with LUKS, below its content.
func CheckBlank(device string, c Content, o Origin) error {
	const kind = "luks"
	if c.Blank() && !c.Mounted {
		o.raw = false
		return checkFormat(device, c, o, kind)
	}
	c.Others = []string{c.describe() + " instead of a LUKS header"}
	return refuseContent(device, c, o, kind)
}

// refuseContent returns the error for a device with other content than a file system.
func refuseContent(device string, c Content, o Origin, kind string) error {
	what := lvm.Errorf(lvm.KindConflict, "device %s contains %s, so the driver does not format it", device, joinAnd(c.Others))
	if o.marked && !c.Marked || c.Rest.Kind != "" {
		return lvm.Errorf(lvm.KindConflict, "%w. %s", what, remedy(device, c.Rest, kind))
	}
	return lvm.Errorf(lvm.KindConflict, "%w. %s. If the content is not needed, clear the device with wipefs -a %s and zero its first 4 KiB", what, repair(device, c.Rest, kind), device)
}

// Repair names the command that repairs a file system which cannot be mounted.
func Repair(device, fsType string) string { return repair(device, Remains{}, fsType) }

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
