package lvm

import (
	"strings"
)

// metadataSize is how much of a device is set apart for LVM's metadata, on which the number of volumes depends: it can
// never grow. 64 MiB are room for tens of thousands of volumes; a small disk gives a hundred-and-twenty-eighth.
func metadataSize(device Bytes) Bytes {
	return min(64*MiB, max(MiB, device/128/MiB*MiB))
}

// pvcreateArgs makes a device a physical volume that bears our mark. There is no -y in any of these: where LVM finds
// something on a device that we have not, it asks, nobody answers, and it gives up.
func pvcreateArgs(d disk) []string {
	return []string{"pvcreate", devicesOption, d.path, "--norestorefile", "--uuid", newPVUUID(), "--metadatasize", kib(metadataSize(d.size)), "--", d.path}
}

// vgcreateArgs makes the group, with this node's name as a tag if it is known. The node does not activate its volumes when it boots: the driver does that when they are
// used.
func vgcreateArgs(d Declaration, node string, paths []string) []string {
	args := []string{"vgcreate", devicesOption, strings.Join(paths, ","), "--physicalextentsize", "4m", "--setautoactivation", "n"}
	args = append(args, addTags(d.Tags)...)
	if tag := encodeTag(keyNode, node); node != "" && len(tag) <= maxTag {
		args = append(args, "--addtag", tag)
	}
	return append(append(args, "--", d.Name), paths...)
}

// vgextendArgs adds physical volumes to the group.
func vgextendArgs(g Group, paths []string) []string {
	return append([]string{"vgextend", devicesOption, devicesOf(g, paths), "--", g.Name}, paths...)
}

// vgtagArgs adds tags to the group; paths are devices that it has just got.
func vgtagArgs(g Group, paths, tags []string) []string {
	args := append([]string{"vgchange", devicesOption, devicesOf(g, paths)}, addTags(tags)...)
	return append(args, "--", g.Name)
}

func devicesOf(g Group, more []string) string {
	var list []string
	for _, pv := range g.PVs {
		if pv.Device != "" {
			list = append(list, pv.Device)
		}
	}
	return strings.Join(append(list, more...), ",")
}
