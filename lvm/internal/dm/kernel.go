package dm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// Kernel implements lvm.Kernel with sysfs and system calls.
type Kernel struct {
	Sys, Proc string // mount points of sysfs and procfs
	Dev       string // the folder of device nodes
}

func (k Kernel) Ready() error {
	if _, err := os.Stat(filepath.Join(k.Sys, "class/misc/device-mapper")); err != nil {
		return lvm.Errorf(lvm.KindInternal, "device-mapper is not in this kernel: load the module dm-mod (%w)", err)
	}
	return nil
}

func (k Kernel) Load(ctx context.Context) error {
	if k.Ready() == nil {
		return nil
	}
	if err := modprobe(ctx, "dm-mod"); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot load device-mapper: %w", err)
	}
	return k.Ready()
}

func (k Kernel) Devices() ([]lvm.Device, error) {
	entries, err := os.ReadDir(filepath.Join(k.Sys, "block"))
	if err != nil {
		return nil, err
	}
	var devices []lvm.Device
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasPrefix(name, "dm-") {
			continue
		}
		uuid, err := k.attribute(name, "dm/uuid")
		if ondisk.Vanished(err) {
			continue // or it has no table yet
		}
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(uuid, "LVM-") {
			devices = append(devices, lvm.Device{UUID: uuid, Path: filepath.Join(k.Dev, name)})
		}
	}
	return devices, nil
}

// Device finds the device. It refuses one on another volume's content: a tenant who writes a volume group to a volume chooses
// its UUIDs, and a node that activates it gives those UUIDs to the kernel.
func (k Kernel) Device(uuid string) (string, bool, error) {
	path, active, err := k.find(uuid)
	if err != nil || !active {
		return path, active, err
	}
	where := ondisk.Positions{Sys: k.Sys, Proc: k.Proc, Dev: k.Dev}
	switch pos := where.OfVolume(filepath.Base(path)); {
	case pos.Standing > ondisk.StandsOnVolume:
		return "", false, lvm.Errorf(lvm.KindConflict, "device %s has this volume's UUID, but the driver cannot confirm that it is the volume: %s (dmsetup ls --tree shows more)", path, pos.Reason)
	case pos.Standing == ondisk.StandsOnVolume:
		return "", false, lvm.Errorf(lvm.KindConflict, "device %s has this volume's UUID but is not the volume: %s; find what activated it (dmsetup ls --tree), and remove it (dmsetup remove)", path, pos.Reason)
	}
	return path, true, nil
}

// DisksBelow implements lvm.Kernel.
func (k Kernel) DisksBelow(path string) (below, removed []string, err error) {
	where := ondisk.Positions{Sys: k.Sys, Proc: k.Proc, Dev: k.Dev}
	below, removed, err = where.DevicesBelow(filepath.Base(path))
	for i, name := range below {
		below[i] = filepath.Join(k.Dev, strings.ReplaceAll(name, "!", "/")) // the kernel's name of a node in a folder
	}
	return below, removed, err
}

// find asks device-mapper by UUID, at a cost that does not depend on the number of volumes. If sysfs contradicts the answer,
// find reads all devices. A device without a live table is inactive: its creator was killed.
func (k Kernel) find(uuid string) (string, bool, error) {
	if found, err := k.ask(unix.DM_DEV_STATUS, uuid); err == nil {
		name := fmt.Sprintf("dm-%d", unix.Minor(found.Dev))
		if found.Target_count == 0 {
			return "", false, nil
		}
		if is, err := k.attribute(name, "dm/uuid"); err == nil && is == uuid {
			return filepath.Join(k.Dev, name), true, nil
		}
	} else if errors.Is(err, unix.ENXIO) {
		return "", false, nil
	}
	devices, err := k.Devices()
	for _, d := range devices {
		if d.UUID == uuid {
			return d.Path, true, nil
		}
	}
	return "", false, err
}

func (k Kernel) Mapping(device uint64) (uuid, name string, err error) {
	dir := filepath.Join(k.Sys, "dev/block", ondisk.NumberOf(device))
	if _, err := os.Stat(dir); err != nil {
		return "", "", err
	}
	read := func(file string) (text string) {
		data, failed := os.ReadFile(filepath.Join(dir, "dm", file))
		if failed != nil && !errors.Is(failed, os.ErrNotExist) {
			err = failed
		}
		return strings.TrimSpace(string(data))
	}
	uuid, name = read("uuid"), read("name")
	return uuid, name, err
}

func (k Kernel) DevicesOnVolumes() ([]string, error) {
	names, err := ondisk.ReadNames(filepath.Join(k.Sys, "class/block"))
	if err != nil {
		return nil, err
	}
	where := ondisk.Positions{Sys: k.Sys, Proc: k.Proc, Dev: k.Dev}
	var list []string
	for _, name := range names {
		uuid, _ := k.attribute(name, "dm/uuid") // other devices have none
		switch {
		case strings.HasPrefix(uuid, "LVM-") && where.OfVolume(name).Standing == ondisk.StandsOnVolume:
			list = append(list, fmt.Sprintf("the node has activated a logical volume (%s) of a volume group that a user wrote to a volume", name))
		case where.HasAttribute(name, "md") && where.Walk(name, 0).Standing == ondisk.StandsOnVolume:
			list = append(list, fmt.Sprintf("the node has assembled a software RAID (%s) that a user wrote to a volume", name))
		}
	}
	return list, nil
}

func (k Kernel) Remove(uuid string) (removed bool, err error) {
	_, err = k.ask(unix.DM_DEV_REMOVE, uuid)
	if errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	return err == nil, err
}

func (k Kernel) ClearInactiveTable(uuid string) (was bool, err error) {
	found, err := k.ask(unix.DM_DEV_STATUS, uuid)
	if errors.Is(err, unix.ENXIO) || err == nil && found.Flags&unix.DM_INACTIVE_PRESENT_FLAG == 0 {
		return false, nil
	}
	if err == nil {
		_, err = k.ask(unix.DM_TABLE_CLEAR, uuid)
	}
	return err == nil, err
}

// ask sends device-mapper a request about one device, and returns its answer; ENXIO: there is none.
func (k Kernel) ask(what uintptr, uuid string) (unix.DmIoctl, error) {
	request := unix.DmIoctl{Version: [3]uint32{4, 0, 0}}
	control, err := os.OpenFile(filepath.Join(k.Dev, "mapper/control"), os.O_RDWR, 0)
	if err != nil {
		return request, err
	}
	defer func() { _ = control.Close() }()
	request.Data_size = uint32(unsafe.Sizeof(request))
	if copy(request.Uuid[:len(request.Uuid)-1], uuid) < len(uuid) {
		return request, fmt.Errorf("%q is too long for a device-mapper UUID", uuid)
	}
	err = ioctl(control, what, unsafe.Pointer(&request))
	return request, err
}

func (k Kernel) IsSuspended(path string) (bool, error) {
	s, err := k.attribute(filepath.Base(path), "dm/suspended")
	return s == "1", err
}

// attribute reads a file of sysfs in three system calls, where os.ReadFile needs six: a node can have a thousand volumes with
// several files each.
func (k Kernel) attribute(name, file string) (string, error) {
	path := filepath.Join(k.Sys, "block", name, file)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var b [256]byte // the longest is a device-mapper UUID, 128 bytes
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return strings.TrimSpace(string(b[:n])), nil
}

// An unused device may be open for a moment, because udev probes it after each writer.
const (
	unusedPatience = 2 * time.Second
	unusedPause    = 50 * time.Millisecond
)

// CheckUnused asks device-mapper for the open count. An exclusive open alone would miss a program that opened the device
// without O_EXCL, as programs do with raw block volumes. A raw device that is only bound at a pod's path is not open, but the next
// device would get its number, and then show itself there.
func (k Kernel) CheckUnused(ctx context.Context, path string) error {
	deadline := time.Now().Add(unusedPatience)
	for {
		opens, err := k.opens(path)
		if err != nil {
			return lvm.Errorf(lvm.KindInternal, "cannot determine whether %s is in use: %w", path, err)
		}
		if opens == 0 {
			return k.checkUnbound(path)
		}
		if time.Now().After(deadline) {
			return lvm.Errorf(lvm.KindInUse, "%s is in use by %s: stop the pod or program, unmount the file system, or remove the device on it; lsof %s and findmnt %s on the node show more", path, k.users(path), path, path)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(unusedPause):
		}
	}
}

// checkUnbound returns KindInUse if the device's node is bound outside /dev, as NodePublishVolume does for a raw block volume.
func (k Kernel) checkUnbound(path string) error {
	var device, found unix.Stat_t
	err := unix.Stat(path, &device)
	var places []string
	if err == nil {
		places, err = ondisk.BoundNodes(filepath.Join(k.Proc, "self/mountinfo"))
	}
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot determine whether %s is in use: %w", path, err)
	}
	for _, place := range places {
		if !strings.HasPrefix(place, k.Dev+"/") && unix.Lstat(place, &found) == nil && found.Mode&unix.S_IFMT == unix.S_IFBLK && found.Rdev == device.Rdev {
			return lvm.Errorf(lvm.KindInUse, "%s is bound at %s, the path of a pod: end the pod, or unmount that path", path, place)
		}
	}
	return nil
}

// users names the devices on a device and its mounts, as far as this process can see them.
func (k Kernel) users(path string) string {
	var names []string
	entries, _ := os.ReadDir(filepath.Join(k.Sys, "block", filepath.Base(path), "holders")) // best effort: an error names no users
	for _, e := range entries {
		names = append(names, "the device "+e.Name())
	}
	if mounts, err := ondisk.ReadMounts("/proc/self/mountinfo"); err == nil {
		for _, place := range mounts[ondisk.NumberAt(path)] {
			names = append(names, "the mount at "+place)
		}
	}
	if len(names) == 0 {
		return "a pod or a program of this node"
	}
	return strings.Join(names, ", ")
}

// opens asks DM_DEV_STATUS for a device's open count (Linux, include/uapi/linux/dm-ioctl.h).
func (k Kernel) opens(path string) (int32, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0, err
	}
	control, err := os.OpenFile(filepath.Join(k.Dev, "mapper/control"), os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = control.Close() }()
	request := unix.DmIoctl{Version: [3]uint32{4, 0, 0}, Dev: stat.Rdev}
	request.Data_size = uint32(unsafe.Sizeof(request))
	if err := ioctl(control, unix.DM_DEV_STATUS, unsafe.Pointer(&request)); err != nil {
		return 0, fmt.Errorf("DM_DEV_STATUS: %w", err)
	}
	return request.Open_count, nil
}

func ioctl(f *os.File, request uintptr, arg unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINTR {
			return errno
		}
	}
}
