package lvmcmd

import (
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// metadataSize is the size of a device's metadata area, which limits the number of volumes and can never grow. 64 MiB suffice
// for tens of thousands of volumes; a small disk gives 1/128. The extents begin a MiB behind the area. At least a MiB of the disk is behind the last
// extent: there the user of a raw block volume could write a RAID's superblock, and the node's mdadm would take the disk.
func metadataSize(device lvm.Bytes) lvm.Bytes {
	size := min(64*lvm.MiB, max(lvm.MiB, device/128/lvm.MiB*lvm.MiB))
	if (device-size-lvm.MiB)%preparedExtent < lvm.MiB {
		size += lvm.MiB
	}
	return size
}

// preparedExtent is the extent size of the groups that the driver creates.
const preparedExtent = 4 * lvm.MiB

// PVCreateArgs creates a physical volume with this UUID. None of these commands has -y: if LVM finds a signature
// that the driver missed, it asks, gets no answer, and fails.
func PVCreateArgs(d ondisk.Disk, uuid string) []string {
	return []string{"pvcreate", DevicesOption, d.Path, "--norestorefile", "--uuid", uuid, "--metadatasize", kib(metadataSize(d.Size)), "--", d.Path}
}

// VGCreateArgs creates the group, with this node's name as a tag if it is known. The node's own LVM does not activate its
// volumes at boot: the driver activates them when they are used.
func VGCreateArgs(d lvm.Declaration, node string, paths []string) []string {
	args := []string{"vgcreate", DevicesOption, strings.Join(paths, ","), "--physicalextentsize", kib(preparedExtent), "--setautoactivation", "n"}
	args = append(args, AddTags(d.Tags)...)
	if tag := lvm.EncodeTag(lvm.KeyNode, node); node != "" && len(tag) <= lvm.MaxTag {
		args = append(args, "--addtag", tag)
	}
	return append(append(args, "--", string(d.Name)), paths...)
}

// VGExtendArgs adds physical volumes to the group.
func VGExtendArgs(g lvm.Group, paths []string) []string {
	return append([]string{"vgextend", DevicesOption, devicesOf(g, paths), "--", string(g.Name)}, paths...)
}

// VGTagArgs adds tags to the group; paths are its newly added devices.
func VGTagArgs(g lvm.Group, paths, tags []string) []string {
	args := append([]string{"vgchange", DevicesOption, devicesOf(g, paths)}, AddTags(tags)...)
	return append(args, "--", string(g.Name))
}

func devicesOf(g lvm.Group, more []string) string {
	var list []string
	for _, pv := range g.PVs {
		if pv.Device != "" {
			list = append(list, pv.Device)
		}
	}
	return strings.Join(append(list, more...), ",")
}
