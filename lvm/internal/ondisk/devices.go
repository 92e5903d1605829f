package ondisk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// Block majors that cannot have a PV: floppy, optical and raw flash drives (Linux, Documentation/admin-guide/devices.txt).
const (
	majorFloppy  = 2
	majorOptical = 11
	majorFlash   = 31
)

// minPV is the smallest device that LVM accepts as a PV (lvm.conf, devices/pv_min_size).
const minPV = 2 * lvm.MiB

// BlockDevice is one device of the node that may be a PV. Two equal values are the same, unchanged device.
type BlockDevice struct {
	Name      string // in /sys/class/block
	Path      string // under /dev
	Size      lvm.Bytes
	Block     lvm.Bytes // its logical block size; 0 if the kernel does not report it
	partition bool
	number    uint64 // as in stat's st_rdev
	Inode     uint64 // of its entry in sysfs; no later device ever has the same
	Disk      bool   // its position is constant; for any other device each reading determines it
}

// blockDevices is the kernel's list of the node's devices.
type blockDevices struct {
	sys     string          // mount point of sysfs
	list    []BlockDevice   // devices that may be PVs, by their size and kind
	volumes map[string]bool // names of LVM's devices
	mappers map[string]bool // names of device-mapper devices that are not LVM's, or have no UUID yet
	stacked bool            // some device other than LVM's is made of others
}

// scanner lists the node's block devices. It reads constant properties of a device once: a scan without a new device reads one
// directory and one file.
type scanner struct {
	mu    sync.Mutex
	known map[string]knownDevice // by name
}

// knownDevice is what the scanner knows of a device, valid while its inode and its size stay the same.
type knownDevice struct {
	inode     uint64
	blocks    int64 // KiB, from /proc/partitions; 0 if missing there
	device    BlockDevice
	candidate bool
	mapper    bool
	uuid      string // of a device-mapper device
}

// scan lists the block devices that may be PVs: no LVM volumes, and no empty or tiny devices.
func (s *scanner) scan(ctx context.Context, sys, proc, dev string) (*blockDevices, error) {
	entries, err := readEntries(filepath.Join(sys, "class/block"))
	if err != nil {
		return nil, fmt.Errorf("cannot list the node's block devices: %w", err)
	}
	sizes, err := readPartitions(filepath.Join(proc, "partitions"))
	if err != nil {
		return nil, fmt.Errorf("cannot list the sizes of the node's block devices: %w", err)
	}
	b := &blockDevices{sys: sys, mappers: map[string]bool{}, volumes: map[string]bool{}}
	now := make(map[string]knownDevice, len(entries))
	s.mu.Lock()
	before := s.known
	s.mu.Unlock()
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		k, known := before[e.name]
		if !known || k.inode != e.inode || k.blocks != sizes[e.name] {
			k, err = b.look(e, sizes[e.name], dev)
			if Vanished(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("cannot read block device %s: %w", e.name, err)
			}
		}
		making := k.mapper && k.uuid == ""
		skipped := k.candidate && k.blocks == 0
		if !making && !skipped {
			now[e.name] = k
		}
		b.add(e.name, k)
	}
	s.mu.Lock()
	s.known = now
	s.mu.Unlock()
	return b, nil
}

// Vanished reports whether an error of sysfs means that a device is removed or being removed: device-mapper returns EINVAL
// during the removal.
func Vanished(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}

func (b *blockDevices) add(name string, k knownDevice) {
	switch {
	case k.mapper && strings.HasPrefix(k.uuid, "LVM-"):
		b.volumes[name] = true
	case k.mapper:
		b.mappers[name] = true
		b.stacked = true
	}
	b.stacked = b.stacked || strings.HasPrefix(name, "md")
	if k.candidate {
		b.list = append(b.list, k.device)
	}
}

// look reads the properties of a new device: one file for an LVM volume or an empty device, else two. A device that
// /proc/partitions lacks may exist: the kernel returns a long list in pieces, and skips a device if another one is removed in
// between.
func (b *blockDevices) look(e dirEntry, blocks int64, dev string) (knownDevice, error) {
	k := knownDevice{inode: e.inode, blocks: blocks, mapper: strings.HasPrefix(e.name, "dm-")}
	if k.mapper {
		uuid, err := b.attribute(e.name, "dm/uuid")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return k, err
		}
		if k.uuid = string(uuid); strings.HasPrefix(k.uuid, "LVM-") {
			return k, nil
		}
	}
	if blocks != 0 && lvm.Bytes(blocks)*lvm.KiB < minPV {
		return k, nil
	}
	var err error
	k.device, k.candidate, err = b.candidate(e.name, dev)
	k.device.Inode = e.inode
	if err != nil || !k.candidate {
		return k, err
	}
	pos, constant, err := Positions{Sys: b.sys}.constant(e.name, 0)
	k.device.Disk = constant && pos.Standing == StandsOnDisks
	k.candidate = !constant || k.device.Disk
	return k, err
}

func (b *blockDevices) candidate(name, dev string) (BlockDevice, bool, error) {
	d := BlockDevice{Name: name}
	text, err := b.attribute(name, "size")
	if err != nil {
		return d, false, err
	}
	sectors, err := strconv.ParseInt(string(text), 10, 54)
	if err != nil {
		return d, false, fmt.Errorf("size: %w", err)
	}
	if d.Size = lvm.Bytes(sectors) * lvm.SectorSize; d.Size < minPV {
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
			d.Path = filepath.Join(dev, value)
		case "DEVTYPE":
			d.partition = value == "partition"
		}
		if err != nil {
			return d, false, fmt.Errorf("uevent: %w", err)
		}
	}
	d.number = unix.Mkdev(uint32(major), uint32(minor))
	d.Block = b.blockSize(name, d.partition)
	never := major == majorFloppy || major == majorOptical || major == majorFlash
	return d, d.Path != "" && !never, nil
}

// blockSize reads a device's logical block size. A partition has that of its disk.
func (b *blockDevices) blockSize(name string, partition bool) lvm.Bytes {
	if partition {
		folder, err := os.Readlink(filepath.Join(b.sys, "class/block", name))
		if err != nil {
			return 0
		}
		name = filepath.Base(filepath.Dir(folder))
	}
	text, err := b.attribute(name, "queue/logical_block_size")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil {
		return 0
	}
	return lvm.Bytes(n)
}

// component reports whether another device is made of this one (software RAID, multipath): then the other one has the PV.
func (b *blockDevices) component(name string) (bool, error) {
	if !b.stacked {
		return false, nil
	}
	holders, err := ReadNames(filepath.Join(b.sys, "class/block", name, "holders"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	for _, holder := range holders {
		if strings.HasPrefix(holder, "md") {
			return true, nil
		}
		if !b.mappers[holder] {
			continue
		}
		// The holder may have been incomplete when it was listed. A holder has a table, and it had its UUID before that.
		uuid, err := b.attribute(holder, "dm/uuid")
		if err == nil && !strings.HasPrefix(string(uuid), "LVM-") {
			return true, nil
		}
		if err != nil && !Vanished(err) {
			return false, err
		}
	}
	return false, err
}

// attribute reads a small sysfs file with the fewest calls: open, read, close.
func (b blockDevices) attribute(name, file string) ([]byte, error) {
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

func ReadNames(dir string) ([]string, error) {
	entries, err := readEntries(dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.name)
	}
	return names, err
}
