package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/internal/dm"
)

// Point is one place where a device is mounted or bound.
type Point struct {
	Path     string
	ReadOnly bool // the mount itself
}

// FileSystem is one mount of a file system.
type FileSystem struct {
	ID   int // the mount's (name_to_handle_at(2))
	Path string
	Type string

	ReadOnly bool // the mount itself, or the file system
}

func mountsWhere(wanted func(dm.Mount) bool) ([]dm.Mount, error) {
	mounts, err := dm.ReadMounts(dm.MountTable)
	if err != nil {
		return nil, fmt.Errorf("cannot read the mount table of this node: %w", err)
	}
	return slices.DeleteFunc(mounts, func(m dm.Mount) bool { return !wanted(m) }), nil
}

// numberOf returns the number of a mount's device; that of a file system without a device is anonymous.
func numberOf(m dm.Mount) DeviceNumber {
	if number := m.Device(); number != 0 {
		return DeviceNumber(number)
	}
	return DeviceNumber(m.Number)
}

// Mounts lists the mount points of a device's whole file system and the binds of the raw device, with all links resolved.
func (m Machine) Mounts(device string) ([]Point, error) {
	block, err := m.Stat(device)
	if err != nil {
		return nil, err
	}
	mounts, err := mountsWhere(func(m dm.Mount) bool {
		if m.Root == "/" { // other roots are parts of the file system, as the kubelet binds for subPath
			return numberOf(m) == block.Number
		}
		number, raw := boundDevice(m)
		return raw && number == block.Number
	})
	points := make([]Point, 0, len(mounts))
	for _, m := range mounts {
		points = append(points, Point{Path: m.Point, ReadOnly: hasOption(m.Options, "ro")})
	}
	return points, err
}

// AllMounts lists what Mounts does, for each device with a mount, from one reading of the table.
func (Machine) AllMounts() (map[DeviceNumber][]Point, error) {
	all := map[DeviceNumber][]Point{}
	mounts, err := mountsWhere(func(m dm.Mount) bool { return m.Root == "/" || m.MayBindNode() })
	for _, m := range mounts {
		number, shown := numberOf(m), true
		if m.Root != "/" {
			number, shown = boundDevice(m)
		}
		if shown {
			all[number] = append(all[number], Point{Path: m.Point, ReadOnly: hasOption(m.Options, "ro")})
		}
	}
	return all, err
}

// FileSystems lists the mount points of whole file systems on block devices, by device, the oldest mount first.
func (Machine) FileSystems() (map[DeviceNumber][]FileSystem, error) {
	mounts, err := mountsWhere(func(m dm.Mount) bool { return m.Root == "/" && strings.HasPrefix(m.Source, "/dev/") })
	all := map[DeviceNumber][]FileSystem{}
	for _, m := range mounts {
		number := numberOf(m)
		all[number] = append(all[number], FileSystem{ID: m.ID, Path: m.Point, Type: m.Type,
			ReadOnly: hasOption(m.Options, "ro") || hasOption(m.SuperOptions, "ro")})
	}
	return all, err
}

// RawDevices lists the devices whose device nodes are bound somewhere, as NodePublishVolume binds raw block volumes.
func (Machine) RawDevices() ([]DeviceNumber, error) {
	mounts, err := mountsWhere(dm.Mount.MayBindNode)
	var numbers []DeviceNumber
	for _, m := range mounts {
		if number, raw := boundDevice(m); raw {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), err
}

// boundDevice returns the number of a bound device node; raw is false if the mount shows something else.
func boundDevice(m dm.Mount) (number DeviceNumber, raw bool) {
	if !m.MayBindNode() {
		return 0, false
	}
	kind, number, err := kindOf(m.Point)
	return number, err == nil && kind == PathDevice
}

func hasOption(options, option string) bool {
	return slices.Contains(strings.Split(options, ","), option)
}

// Failed lists the devices whose mounted file systems have errors, after which the kernel makes them read-only: a writable mount of a file
// system that has become read-only. A mount that was requested read-only is read-only itself (proc_pid_mountinfo(5), fields 6 and 11). Not every
// kernel shows this for ext4, but each counts its errors (Linux, Documentation/ABI/testing/sysfs-fs-ext4), from zero after the check before a
// mount.
func (Machine) Failed() ([]DeviceNumber, error) {
	failed, err := mountsWhere(func(m dm.Mount) bool {
		if !strings.HasPrefix(m.Source, "/dev/") || !hasOption(m.Options, "rw") {
			return false
		}
		return hasOption(m.SuperOptions, "ro") || hasOption(m.SuperOptions, "emergency_ro") || hasOption(m.SuperOptions, "shutdown") ||
			m.Type == "ext4" && countsErrors(m)
	})
	numbers := make([]DeviceNumber, 0, len(failed))
	for _, m := range failed {
		numbers = append(numbers, numberOf(m))
	}
	return numbers, err
}

func countsErrors(m dm.Mount) bool {
	device, err := os.Readlink("/sys/dev/block/" + dm.FormatNumber(m.Number))
	if err != nil {
		return false // it is being unmounted
	}
	count, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "errors_count"))
	return err == nil && strings.TrimSpace(string(count)) != "0"
}
