package ondisk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
)

// MadeOf is the kind of what a block device is made of. It decides whether the device may have a physical volume.
type MadeOf int

const (
	MadeOfDisks   MadeOf = iota // A disk of the node, or made of disks only.
	madeOfRemoved               // Made of devices that were removed since, so its content cannot be read.
	MadeOfNothing               // A device-mapper device without a disk below it, so without content. Reads may fail or block.
	MadeOfVolume                // a volume, or made of one
	madeOfUnknown               // what it is made of is unknown
)

// position is what a block device is made of, according to the kernel.
type position struct {
	MadeOf
	Reason string // why it may not have a physical volume; "": it may
	err    error  // why the device may have a physical volume that cannot be read; nil: it has none, or it can be read
}

// Positions is the only code that decides which block devices may have a physical volume of the node's groups. It uses device
// numbers and sysfs, never a device's name or content: the user of a raw block volume chooses its content, and the kubelet
// attaches a loop device to it.
type Positions struct {
	Sys, Proc, Dev string
	volumes        map[string]bool                    // names of known LVM devices; may be nil
	backing        func(loop int) (loopStatus, error) // asks an open loop device; nil means askLoop
	walked         map[string]position                // what Walk returned; nil: it remembers nothing
}

// notOpen is the descriptor of a device that is not open.
const notOpen = -1

// maxStack is far above the number of stacked devices on any node.
const maxStack = 16

// majorMemory is the major number of RAM disks (Linux, Documentation/admin-guide/devices.txt).
const majorMemory = "1:"

func positionOnVolume(name string) position {
	return position{MadeOf: MadeOfVolume, Reason: fmt.Sprintf("it is on the logical volume %s: the driver does not search the content of volumes for volume groups", name)}
}

func positionUnknown(format string, args ...any) position {
	return position{MadeOf: madeOfUnknown, Reason: "cannot determine what it is made of: " + fmt.Sprintf(format, args...)}
}

// positionUnread is positionUnknown for an error of the kernel: the device may have a physical volume.
func positionUnread(err error) position {
	pos := positionUnknown("%v", err)
	pos.err = errors.New(pos.Reason)
	return pos
}

// of returns the position of a device whose position is not constant. held is its descriptor, or notOpen.
func (p Positions) of(d BlockDevice, held int) position {
	if held != notOpen && unix.Major(d.number) == majorLoop && !d.partition {
		return p.loop(d.Name, held, 0)
	}
	return p.made(d.Name, held, 0)
}

// Walk returns the position of any device.
func (p Positions) Walk(name string, depth int) position {
	pos, known := p.walked[name]
	if known {
		return pos
	}
	pos = p.walk(name, depth)
	if p.walked != nil {
		p.walked[name] = pos
	}
	return pos
}

func (p Positions) walk(name string, depth int) position {
	if p.volumes[name] {
		return positionOnVolume(name)
	}
	if depth > maxStack {
		return positionUnknown("more than %d devices are made of one another", maxStack)
	}
	if pos, constant, err := p.constant(name, depth); err != nil {
		return positionUnread(err)
	} else if constant {
		return pos
	}
	return p.made(name, notOpen, depth)
}

// made returns the position of a device that is made of others.
func (p Positions) made(name string, held, depth int) position {
	whole, err := p.whole(name)
	if err != nil {
		return positionUnread(err)
	}
	if whole != "" {
		return p.Walk(whole, depth+1)
	}
	below, removed, err := p.slaves(name)
	if err != nil {
		return positionUnread(err)
	}
	if len(below) > 0 {
		return p.all(below, depth)
	}
	if len(removed) > 0 {
		return positionRemoved(name, removed...)
	}
	if p.HasAttribute(name, "loop/backing_file") {
		return p.loop(name, held, depth)
	}
	if p.HasAttribute(name, "dm/uuid") {
		return position{MadeOf: MadeOfNothing, Reason: fmt.Sprintf("%s is a device-mapper device with no device below it", name)}
	}
	return positionUnknown("%s is no disk, and the kernel names no device below it", name)
}

// OfVolume returns the position of what is below all of LVM's devices of a logical volume. A volume on nothing has no content.
func (p Positions) OfVolume(name string) position {
	below, _, err := p.DevicesBelow(name)
	if err != nil {
		return positionUnread(err)
	}
	return p.all(below, 0)
}

// all returns the position of a device that is made of several: the worst of theirs. One without content, removed or on nothing, does not
// count while another remains.
func (p Positions) all(below []string, depth int) position {
	var worst, empty position
	remains := false
	for _, name := range below {
		switch pos := p.Walk(name, depth+1); {
		case pos.MadeOf == MadeOfVolume:
			return pos
		case pos.MadeOf == madeOfRemoved || pos.MadeOf == MadeOfNothing:
			empty = pos
		case !remains || pos.MadeOf > worst.MadeOf:
			worst, remains = pos, true
		}
	}
	if !remains {
		return empty
	}
	return worst
}

// constant returns the position of a device whose position is constant: an LVM volume, a disk, memory, and their partitions.
func (p Positions) constant(name string, depth int) (pos position, constant bool, err error) {
	uuid, err := dm.Attribute(p.Sys, name, "dm/uuid")
	if err == nil {
		return positionOnVolume(name), strings.HasPrefix(uuid, "LVM-"), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return position{}, false, err
	}
	whole, err := p.whole(name)
	if err != nil {
		return position{}, false, err
	}
	if whole != "" && depth < maxStack {
		return p.constant(whole, depth+1)
	}
	if p.HasAttribute(name, "device") {
		return p.disk(name)
	}
	return p.memory(name)
}

// disk returns the position of a hardware driver's device. An image of a Ceph cluster is no disk: its content is that of
// another storage system's volume.
func (p Positions) disk(name string) (position, bool, error) {
	bus, err := os.Readlink(p.path(name, "device/subsystem"))
	if err == nil && filepath.Base(bus) == "rbd" {
		return position{MadeOf: MadeOfVolume, Reason: fmt.Sprintf("%s is an image of a Ceph cluster, a volume of another storage system", name)}, true, nil
	}
	return position{}, true, nil
}

// memory returns the position of a RAM disk, and of zram without a backing device.
func (p Positions) memory(name string) (position, bool, error) {
	number, err := dm.Attribute(p.Sys, name, "dev")
	if err == nil && strings.HasPrefix(number, majorMemory) {
		return position{}, true, nil
	}
	if !p.HasAttribute(name, "mm_stat") {
		return position{}, false, nil
	}
	back, err := dm.Attribute(p.Sys, name, "backing_dev")
	return position{}, errors.Is(err, os.ErrNotExist) || err == nil && back == "none", nil
}

// whole returns the disk of a partition; "" for a device that is no partition.
func (p Positions) whole(name string) (string, error) {
	if !p.HasAttribute(name, "partition") {
		return "", nil
	}
	folder, err := os.Readlink(p.path(name))
	if err != nil {
		return "", err
	}
	return filepath.Base(filepath.Dir(folder)), nil
}

// unchanged checks that the entry in sysfs is still the listed one. While a device is open, no other device gets its number: a
// device that is opened and then found unchanged is the listed one.
func (p Positions) unchanged(d BlockDevice) error {
	var st unix.Stat_t
	if err := unix.Lstat(p.path(d.Name), &st); err != nil {
		return &os.PathError{Op: "stat", Path: p.path(d.Name), Err: err}
	}
	if st.Ino != d.Inode {
		return fmt.Errorf("%s is another device now than when it was listed: %w", d.Name, unix.ENODEV)
	}
	return nil
}

func (p Positions) path(name string, file ...string) string {
	return filepath.Join(append([]string{p.Sys, "class/block", name}, file...)...)
}

func (p Positions) HasAttribute(name, file string) bool {
	var st unix.Stat_t
	return unix.Lstat(p.path(name, file), &st) == nil
}
