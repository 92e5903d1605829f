package ondisk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
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
	entries, err := dm.ReadEntries(filepath.Join(sys, "class/block"))
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
		k, known := before[e.Name]
		if !known || k.inode != e.Inode || k.blocks != sizes[e.Name] {
			k, err = b.look(e, sizes[e.Name], dev)
			if dm.IsVanished(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("cannot read block device %s: %w", e.Name, err)
			}
		}
		making := k.mapper && k.uuid == ""
		skipped := k.candidate && k.blocks == 0
		if !making && !skipped {
			now[e.Name] = k
		}
		b.add(e.Name, k)
	}
	s.mu.Lock()
	s.known = now
	s.mu.Unlock()
	return b, nil
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
func (b *blockDevices) look(e dm.Entry, blocks int64, dev string) (knownDevice, error) {
	k := knownDevice{inode: e.Inode, blocks: blocks, mapper: strings.HasPrefix(e.Name, "dm-")}
	if k.mapper {
		uuid, err := dm.Attribute(b.sys, e.Name, "dm/uuid")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return k, err
		}
		if k.uuid = uuid; strings.HasPrefix(k.uuid, "LVM-") {
			return k, nil
		}
	}
	if blocks != 0 && lvm.Bytes(blocks)*lvm.KiB < minPV {
		return k, nil
	}
	var err error
	k.device, k.candidate, err = b.candidate(e.Name, dev)
	k.device.Inode = e.Inode
	if err != nil || !k.candidate {
		return k, err
	}
	pos, constant, err := Positions{Sys: b.sys}.constant(e.Name, 0)
	k.device.Disk = constant && pos.MadeOf == MadeOfDisks
	k.candidate = !constant || k.device.Disk
	return k, err
}

func (b *blockDevices) candidate(name, dev string) (BlockDevice, bool, error) {
	d := BlockDevice{Name: name}
	text, err := dm.Attribute(b.sys, name, "size")
	if err != nil {
		return d, false, err
	}
	sectors, err := strconv.ParseInt(text, 10, 54)
	if err != nil {
		return d, false, fmt.Errorf("size: %w", err)
	}
	if d.Size = lvm.Bytes(sectors) * lvm.SectorSize; d.Size < minPV {
		return d, false, nil
	}
	text, err = dm.Attribute(b.sys, name, "uevent")
	if err != nil {
		return d, false, err
	}
	var major, minor uint64
	for line := range strings.Lines(text) {
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
	text, err := dm.Attribute(b.sys, name, "queue/logical_block_size")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 32)
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
	holders, err := dm.ReadNames(filepath.Join(b.sys, "class/block", name, "holders"))
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
		uuid, err := dm.Attribute(b.sys, holder, "dm/uuid")
		if err == nil && !strings.HasPrefix(uuid, "LVM-") {
			return true, nil
		}
		if err != nil && !dm.IsVanished(err) {
			return false, err
		}
	}
	return false, err
}

// readPartitions returns the size of each block device in /proc/partitions (proc(5)), in KiB, by its name in sysfs. The file is
// the same in every namespace.
func readPartitions(path string) (map[string]int64, error) {
	text, err := dm.ReadSmall(path)
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] == "major" {
			continue
		}
		blocks, err := strconv.ParseInt(f[2], 10, 54)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		sizes[strings.ReplaceAll(f[3], "/", "!")] = blocks
	}
	return sizes, nil
}
