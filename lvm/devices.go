package lvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Block majors that no PV can be on: floppy, optical and raw flash drives (Linux, Documentation/admin-guide/devices.txt).
const (
	majorFloppy  = 2
	majorOptical = 11
	majorFlash   = 31
)

// minPV is the smallest device that LVM takes for a PV (lvm.conf, devices/pv_min_size).
const minPV = 2 * MiB

// blockDevice is one device of the node that may be a PV.
type blockDevice struct {
	name      string // in /sys/class/block
	path      string // under /dev
	size      Bytes
	partition bool
	number    uint64 // as in stat's st_rdev
}

// blockDevices is the node's list of devices, as sysfs gives it.
type blockDevices struct {
	sys     string            // where sysfs is
	list    []blockDevice     // candidates for a PV
	mappers map[string]string // name of each device-mapper device -> its dm/uuid
}

// scanDevices lists the block devices that may be PVs: not those of LVM's own volumes, not empty or tiny ones.
// It costs two files for each device, one for each volume.
func scanDevices(ctx context.Context, sys, dev string) (*blockDevices, error) {
	names, err := readNames(filepath.Join(sys, "class/block"))
	if err != nil {
		return nil, fmt.Errorf("list the node's block devices: %w", err)
	}
	b := &blockDevices{sys: sys, mappers: map[string]string{}}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if strings.HasPrefix(name, "dm-") {
			uuid, err := b.attribute(name, "dm/uuid")
			if err == nil {
				b.mappers[name] = string(uuid)
			}
			if strings.HasPrefix(string(uuid), "LVM-") {
				continue
			}
		}
		device, ok, err := b.candidate(name, dev)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) { // it may vanish meanwhile
			return nil, fmt.Errorf("look at block device %s: %w", name, err)
		}
		if ok {
			b.list = append(b.list, device)
		}
	}
	return b, nil
}

func (b *blockDevices) candidate(name, dev string) (blockDevice, bool, error) {
	d := blockDevice{name: name}
	text, err := b.attribute(name, "size")
	if err != nil {
		return d, false, err
	}
	sectors, err := strconv.ParseInt(string(text), 10, 54)
	if err != nil {
		return d, false, fmt.Errorf("size: %w", err)
	}
	if d.size = Bytes(sectors) * sectorSize; d.size < minPV {
		return d, false, nil
	}
	text, err = b.attribute(name, "uevent")
	if err != nil {
		return d, false, err
	}
	var major, minor uint64
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "MAJOR":
			major, err = strconv.ParseUint(value, 10, 32)
		case "MINOR":
			minor, err = strconv.ParseUint(value, 10, 32)
		case "DEVNAME":
			d.path = filepath.Join(dev, value)
		case "DEVTYPE":
			d.partition = value == "partition"
		}
		if err != nil {
			return d, false, fmt.Errorf("uevent: %w", err)
		}
	}
	d.number = unix.Mkdev(uint32(major), uint32(minor))
	never := major == majorFloppy || major == majorOptical || major == majorFlash
	return d, d.path != "" && !never, nil
}

// component says whether another device is made of this one (a leg of a software RAID, a path of a multipath
// device): then that one carries the PV, not this.
func (b *blockDevices) component(name string) (bool, error) {
	holders, err := readNames(filepath.Join(b.sys, "class/block", name, "holders"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	for _, holder := range holders {
		uuid, isMapper := b.mappers[holder]
		if isMapper && !strings.HasPrefix(uuid, "LVM-") || strings.HasPrefix(holder, "md") {
			return true, nil
		}
	}
	return false, err
}

// attribute reads a small sysfs file with the fewest calls: open, read, close.
func (b *blockDevices) attribute(name, file string) ([]byte, error) {
	path := filepath.Join(b.sys, "class/block", name, file)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, 1024)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return bytes.TrimSpace(buf[:n]), nil
}

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return f.Readdirnames(-1)
}
