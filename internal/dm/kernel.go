package dm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// Kernel is the part of lvm.Kernel that needs no knowledge of what a device is made of: sysfs and system calls.
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

// Control returns the kernel's control device of device-mapper.
func (k Kernel) Control() Control { return Control(filepath.Join(k.Dev, "mapper/control")) }

// Devices asks device-mapper, and sysfs if that fails.
func (k Kernel) Devices() ([]lvm.Device, error) {
	all, err := k.Control().Devices()
	if err != nil {
		return k.devicesInSysfs()
	}
	devices := make([]lvm.Device, 0, len(all))
	for _, d := range all {
		if strings.HasPrefix(d.UUID, "LVM-") {
			path := filepath.Join(k.Dev, fmt.Sprintf("dm-%d", unix.Minor(d.Number)))
			devices = append(devices, lvm.Device{UUID: d.UUID, Path: path, Number: d.Number, Suspended: d.Suspended, Below: d.Below})
		}
	}
	return devices, nil
}

func (k Kernel) devicesInSysfs() ([]lvm.Device, error) {
	names, err := ReadNames(filepath.Join(k.Sys, "class/block"))
	if err != nil {
		return nil, err
	}
	var devices []lvm.Device
	for _, name := range names {
		if !strings.HasPrefix(name, "dm-") {
			continue
		}
		uuid, err := Attribute(k.Sys, name, "dm/uuid")
		if IsVanished(err) {
			continue // or it has no table yet
		}
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(uuid, "LVM-") {
			suspended, err := k.IsSuspended(name)
			devices = append(devices, lvm.Device{UUID: uuid, Path: filepath.Join(k.Dev, name), Suspended: err == nil && suspended})
		}
	}
	return devices, nil
}

// Device asks device-mapper by UUID, at a cost that does not depend on the number of volumes. If sysfs contradicts the answer,
// Device reads all devices. A device without a live table is inactive: its creator was killed.
func (k Kernel) Device(uuid string) (string, bool, error) {
	if found, err := k.Control().Info(Key{UUID: uuid}); err == nil {
		name := fmt.Sprintf("dm-%d", unix.Minor(found.Number))
		if found.Targets == 0 {
			return "", false, nil
		}
		if is, err := Attribute(k.Sys, name, "dm/uuid"); err == nil && is == uuid {
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
	dir := filepath.Join(k.Sys, "dev/block", FormatNumber(device))
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

func (k Kernel) Remove(uuid string) (removed bool, err error) {
	err = k.Control().Remove(Key{UUID: uuid})
	if errors.Is(err, unix.ENXIO) {
		return false, nil
	}
	return err == nil, err
}

func (k Kernel) SuspendDevice(uuid string, suspend bool) error {
	return k.Control().Suspend(Key{UUID: uuid}, suspend)
}

func (k Kernel) MessagePool(uuid, text string) error {
	return k.Control().Message(Key{UUID: uuid}, text)
}

func (k Kernel) ClearInactiveTable(uuid string) (was bool, err error) {
	found, err := k.Control().Info(Key{UUID: uuid})
	if errors.Is(err, unix.ENXIO) || err == nil && !found.Inactive {
		return false, nil
	}
	if err == nil {
		err = k.Control().ClearInactiveTable(Key{UUID: uuid})
	}
	return err == nil, err
}

func (k Kernel) Status(path string) (target, params string, err error) {
	var stat unix.Stat_t
	var found Info
	if err = unix.Stat(path, &stat); err == nil {
		found, err = k.Control().Status(Key{Number: stat.Rdev})
	}
	if err != nil {
		return "", "", fmt.Errorf("cannot read the status of %s: %w", path, err)
	}
	return found.Target.Type, found.Target.Params, nil
}

func (k Kernel) IsSuspended(path string) (bool, error) {
	s, err := Attribute(k.Sys, filepath.Base(path), "dm/suspended")
	return s == "1", err
}

// Writes reads the kernel's counts. While queue/iostats is 0 it may count nothing: then they may be any number. device-mapper of Linux 6.1 has
// 0 there and counts nevertheless, as a read shows.
func (k Kernel) Writes(path string) (count int64, size lvm.Bytes, err error) {
	counts, err := Attribute(k.Sys, filepath.Base(path), "queue/iostats")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, 0, err
	}
	now, err := k.statistics(path)
	switch {
	case err != nil:
		return 0, 0, err
	case counts == "0" && !k.countsRead(path, now):
		return math.MaxInt64, 0, nil
	}
	return now.writes, lvm.Bytes(now.sectorsWritten) * lvm.SectorSize, nil
}

// statistics are counts of a device since it exists. A sector has 512 bytes.
type statistics struct{ reads, writes, sectorsWritten int64 }

// statistics reads /sys/block/DEVICE/stat (Linux, Documentation/block/stat.rst).
func (k Kernel) statistics(path string) (s statistics, err error) {
	text, err := Attribute(k.Sys, filepath.Base(path), "stat")
	if err != nil {
		return s, err
	}
	if n, err := fmt.Sscan(text, &s.reads, new(int64), new(int64), new(int64), &s.writes, new(int64), &s.sectorsWritten); err != nil {
		return s, fmt.Errorf("the statistics of %s are %q: after %d numbers: %w", path, text, n, err)
	}
	return s, nil
}

// countsRead reads from a device, past the page cache, and reports whether the kernel counts that.
func (k Kernel) countsRead(path string, before statistics) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	_, err = unix.Pread(fd, AlignedMemory(DirectAlign), 0)
	now, failed := k.statistics(path)
	return errors.Join(err, unix.Close(fd), failed) == nil && now.reads > before.reads
}

// DirectAlign is the alignment of memory, offset and length that O_DIRECT needs: the logical block size, at most this on disks that LVM accepts.
const DirectAlign = 4096

// AlignedMemory returns memory for O_DIRECT.
func AlignedMemory(size int) []byte {
	memory := make([]byte, size+DirectAlign)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(memory))) % DirectAlign)
	return memory[skip : skip+size : skip+size]
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
		var stat unix.Stat_t
		var found Info
		err := unix.Stat(path, &stat)
		if err == nil {
			found, err = k.Control().Info(Key{Number: stat.Rdev})
		}
		if err != nil {
			return lvm.Errorf(lvm.KindInternal, "cannot determine whether %s is in use: %w", path, err)
		}
		if found.Opens == 0 {
			return k.checkUnbound(path, stat.Rdev)
		}
		if time.Now().After(deadline) {
			return lvm.Errorf(lvm.KindInUse, "%s is in use by %s: stop the pod or program, unmount the file system, or remove the device on it; %s", path, k.users(path, stat.Rdev), FindUsers(path, stat.Rdev))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(unusedPause):
		}
	}
}

// Opens asks device-mapper how often a device is open.
func (k Kernel) Opens(path string) (int, error) {
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	if err != nil {
		return 0, lvm.Errorf(lvm.KindInternal, "cannot determine how often %s is open: %w", path, err)
	}
	found, err := k.Control().Info(Key{Number: stat.Rdev})
	if err != nil {
		return 0, lvm.Errorf(lvm.KindInternal, "cannot determine how often %s is open: %w", path, err)
	}
	return int(found.Opens), nil
}

// checkUnbound returns KindInUse if the device's node is bound outside /dev, as NodePublishVolume does for a raw block volume.
func (k Kernel) checkUnbound(path string, number uint64) error {
	mounts, err := ReadMounts(filepath.Join(k.Proc, "self/mountinfo"))
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot determine whether %s is in use: %w", path, err)
	}
	var found unix.Stat_t
	for _, m := range mounts {
		if m.MayBindNode() && !strings.HasPrefix(m.Point, k.Dev+"/") && unix.Lstat(m.Point, &found) == nil && found.Mode&unix.S_IFMT == unix.S_IFBLK && found.Rdev == number {
			return lvm.Errorf(lvm.KindInUse, "%s is bound at %s, the path of a pod: end the pod, or unmount that path", path, m.Point)
		}
	}
	return nil
}

// mountPoints returns where the file system on a device is mounted, as far as this process sees.
func mountPoints(device uint64) (points []string, err error) {
	mounts, err := ReadMounts(MountTable)
	for _, m := range mounts {
		if m.Device() == device {
			points = append(points, m.Point)
		}
	}
	return points, err
}

// FindUsers says how an admin finds what has a device open. A pod can hold a mount that no other process sees, and lsof shows none of its
// processes: their tables of mounts do, by the device's number or, for btrfs, its name.
func FindUsers(path string, number uint64) string {
	name := fmt.Sprintf("dm-%d", unix.Minor(number))
	return fmt.Sprintf("on the node, lsof %s and grep -lwE '%s|%s' /proc/[0-9]*/mountinfo name its processes", path, FormatNumber(number), name)
}

// users names the devices on a device and its mounts, as far as this process can see them.
func (k Kernel) users(path string, number uint64) string {
	var users []string
	holders, _ := ReadNames(filepath.Join(k.Sys, "class/block", filepath.Base(path), "holders")) // best effort: an error names no users
	for _, name := range holders {
		users = append(users, "the device "+name)
	}
	points, _ := mountPoints(number) // as above
	for _, point := range points {
		users = append(users, "the mount at "+point)
	}
	if len(users) == 0 {
		return "a pod or a program of this node"
	}
	return strings.Join(users, ", ")
}
