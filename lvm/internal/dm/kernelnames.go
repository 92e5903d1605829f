package dm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// A deviceName describes a name in /dev/mapper or /dev/GROUP.
type deviceName struct {
	node   bool   // a device node, as an lvm without udev creates it; udev creates links
	there  bool   // its device exists
	mapper bool   // its device is a device-mapper device, or missing
	udev   bool   // a link as udev creates it
	name   string // device-mapper's name of its device
	uuid   string
}

// stale reports whether a volume's name leads to a wrong device, or soon can. It is stale if it leads to no device or to one
// with another name. It is stale too if it is a device node of a managed volume, because neither an admin's lvm nor udev
// removes that with its device. A name of an unknown kind is not stale.
func (n deviceName) stale(wanted string, ours func(uuid string) bool) bool {
	switch {
	case !n.mapper:
		return false
	case !n.there:
		return true
	case n.name != wanted:
		return true
	}
	return n.node && ours(n.uuid)
}

// RemoveStaleNames implements Kernel.
func (k Kernel) RemoveStaleNames(group lvm.VGName, ours func(uuid string) bool) (removed []string, err error) {
	dir := filepath.Join(k.Dev, "mapper")
	names, err := ondisk.ReadNames(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !isMapperNameOf(group, name) {
			continue
		}
		path := filepath.Join(dir, name)
		if is, err := k.removeIf(path, name, func(n deviceName) bool { return n.stale(name, ours) }); err != nil {
			return removed, err
		} else if is {
			removed = append(removed, path)
		}
	}
	links, err := k.removeStaleLinks(group, ours)
	return append(removed, links...), err
}

// RemoveNamesOf implements Kernel. A name that does not exist costs one system call.
func (k Kernel) RemoveNamesOf(group lvm.VGName, lv string, hidden []string) (removed []string, err error) {
	volume := MapperName(group, lv)
	remove := func(path, wanted string) bool {
		is, failure := k.removeIf(path, wanted, func(n deviceName) bool { return !n.udev && n.stale(wanted, NoneOurs) })
		if is {
			removed = append(removed, path)
		}
		err = errors.Join(err, failure)
		return is
	}
	for _, name := range append([]string{volume}, hidden...) {
		remove(filepath.Join(k.Dev, "mapper", name), name)
	}
	if dir := filepath.Join(k.Dev, string(group)); remove(filepath.Join(dir, lv), volume) {
		_ = unix.Rmdir(dir) // fails unless empty; vgrename refuses to use the name while the folder exists
	}
	return removed, err
}

// NoneOurs is for names that are right whenever they lead to their volume's device.
func NoneOurs(string) bool { return false }

// removeStaleLinks handles /dev/GROUP, where LVM and udev create links.
func (k Kernel) removeStaleLinks(group lvm.VGName, ours func(uuid string) bool) (removed []string, err error) {
	dir := filepath.Join(k.Dev, string(group))
	info, err := os.Lstat(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := ondisk.ReadNames(dir)
	if err != nil {
		return nil, err
	}
	for _, lv := range names {
		path, wanted := filepath.Join(dir, lv), MapperName(group, lv)
		if is, err := k.removeIf(path, wanted, func(n deviceName) bool { return n.stale(wanted, ours) }); err != nil {
			return removed, err
		} else if is {
			removed = append(removed, path)
		}
	}
	if len(removed) > 0 && len(removed) == len(names) {
		_ = os.Remove(dir) // vgrename refuses to use the name while the folder exists
	}
	return removed, nil
}

func (k Kernel) removeIf(path, wanted string, stale func(deviceName) bool) (bool, error) {
	n, err := k.nameAt(path, wanted)
	if ondisk.Vanished(err) {
		return false, nil
	}
	if err != nil || !stale(n) {
		return false, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, nil
}

// nameAt describes the name at a path; wanted is the volume's name in /dev/mapper, where LVM's links lead.
func (k Kernel) nameAt(path, wanted string) (deviceName, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return deviceName{}, err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		device, err := os.Readlink(filepath.Join(k.Sys, fmt.Sprintf("dev/block/%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))))
		if errors.Is(err, fs.ErrNotExist) {
			return deviceName{node: true, mapper: true}, nil
		}
		if err != nil {
			return deviceName{}, err
		}
		if !strings.HasPrefix(filepath.Base(device), "dm-") {
			return deviceName{}, nil
		}
		return k.named(deviceName{node: true}, filepath.Base(device))
	case unix.S_IFLNK:
		link, err := os.Readlink(path)
		if err != nil {
			return deviceName{}, err
		}
		return k.linked(link, wanted)
	}
	return deviceName{}, nil
}

// linked describes a link to the name in /dev/mapper, as LVM creates it, or to the device itself, as udev does. Other links are
// unknown.
func (k Kernel) linked(link, wanted string) (deviceName, error) {
	var n deviceName
	if link == filepath.Join(k.Dev, "mapper", wanted) {
		_, err := os.Lstat(link)
		if errors.Is(err, fs.ErrNotExist) {
			n.mapper = true
			return n, nil
		}
		return n, err
	}
	dir, device := filepath.Split(link)
	if dir != "../" && dir != k.Dev+"/" || !strings.HasPrefix(device, "dm-") {
		return n, nil
	}
	n.udev = true
	return k.named(n, device)
}

// named asks device-mapper for the name of a device of sysfs.
func (k Kernel) named(n deviceName, device string) (deviceName, error) {
	name, err := k.attribute(device, "dm/name")
	if errors.Is(err, fs.ErrNotExist) {
		n.mapper = true
		return n, nil
	}
	if err != nil {
		return n, err
	}
	n.there, n.mapper, n.name = true, true, name
	n.uuid, err = k.attribute(device, "dm/uuid")
	return n, err
}
