package lvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// disk is a block device of the node, with all that decides whether it may become a physical volume.
type disk struct {
	blockDevice
	position
	links      []string // its other names, below /dev/disk
	block      Bytes    // what it reads and writes at least at once (its logical block size); 0 where the kernel does not tell
	model      string   // as the hardware tells it; "" where it does not
	rotational bool
	readOnly   bool
	zoned      bool // it takes writes in its zones' order alone
	removable  bool
	silent     bool     // it does not answer
	remote     bool     // reached over a network of disks, on which other hosts may be
	virtual    bool     // made by the kernel from something else: loop, md, device-mapper, zram, nbd, ...
	holders    []string // devices that are made of it
	parts      []string // its partitions
	uses       []string // in words: who has it in use, as far as this process can see
	group      string   // of the physical volume on it
	pv         *probe   // the physical volume on it; nil if there is none
}

// names are all the names that a pattern may match.
func (d disk) names() []string { return append([]string{d.path}, d.links...) }

// survey looks at the node's devices.
type survey struct {
	sys, proc, dev string
	backing        func(loop string) (number uint64, err error) // of the device that a loop device is made of; 0: of a file
}

func (v survey) positions() positions { return positions{sys: v.sys, proc: v.proc, dev: v.dev} }

// disks lists the node's block devices but for LVM's own volumes, those that are too small for a physical volume, and
// hidden paths of others.
func (v survey) disks(ctx context.Context, s State) ([]disk, error) {
	found, err := new(scanner).scan(ctx, v.sys, v.proc, v.dev)
	if err != nil {
		return nil, err
	}
	uses, err := v.uses()
	if err != nil {
		return nil, err
	}
	r := prober{positions: v.positions(), mustBeBlock: true, texts: &groupTexts{}}
	r.positions.volumes = found.volumes
	links, groups := v.links(), map[string]string{}
	for _, g := range s.Groups {
		for _, pv := range g.PVs {
			groups[pv.Device] = g.Name
		}
	}
	var list []disk
	for _, b := range found.list {
		if text, err := found.attribute(b.name, "hidden"); err == nil && string(text) == "1" {
			continue
		}
		d, err := v.look(b)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // it went away
		}
		if err != nil {
			return nil, Errorf(KindInternal, "look at %s: %w", b.path, err)
		}
		d.links, d.uses, d.group = links[b.name], uses[b.name], groups[b.path]
		if d.silent = slices.Contains(s.Silent, b.path); d.silent {
			list = append(list, d)
			continue
		}
		p := r.probe(b, probe{})
		if d.position = p.position; p.label != nil {
			d.pv = &p
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b disk) int { return compareNames(a.path, b.path) })
	return list, nil
}

// look asks sysfs about one device. What a partition has not, its disk has.
func (v survey) look(device blockDevice) (disk, error) {
	d := disk{blockDevice: device}
	folder, err := filepath.EvalSymlinks(filepath.Join(v.sys, "class/block", device.name))
	if err != nil {
		return d, err
	}
	text := func(files ...string) string {
		for _, file := range files {
			if text, err := os.ReadFile(filepath.Join(folder, file)); err == nil { // ".." is a partition's disk there
				return strings.TrimSpace(string(text))
			}
		}
		return ""
	}
	d.model = strings.Join(strings.Fields(text("device/model", "../device/model")), " ")
	d.rotational = text("queue/rotational", "../queue/rotational") == "1"
	if n, err := strconv.ParseInt(text("queue/logical_block_size", "../queue/logical_block_size"), 10, 32); err == nil {
		d.block = Bytes(n)
	}
	d.readOnly = text("ro") != "0" // not told: not to be written
	d.zoned = text("queue/zoned", "../queue/zoned") == "host-managed"
	d.removable = text("removable", "../removable") == "1"
	d.virtual = strings.Contains(folder, "/devices/virtual/") || strings.HasPrefix(device.name, "rbd")
	d.remote = remotePath.MatchString(folder)
	if d.holders, err = readNames(filepath.Join(folder, "holders")); err != nil {
		return d, err
	}
	entries, err := readNames(folder)
	for _, name := range entries {
		if _, err := os.Stat(filepath.Join(folder, name, "partition")); err == nil && !device.partition {
			d.parts = append(d.parts, name)
		}
	}
	return d, err
}

// remotePath is in the sysfs path of a disk behind iSCSI or Fibre Channel (Linux, scsi_transport_iscsi.c, scsi_transport_fc.c).
// One of NVMe over Fabrics is below /devices/virtual.
var remotePath = regexp.MustCompile(`/(session[0-9]+|rport-[0-9:-]+)/`)

// links answers the names below /dev/disk that stay the same over restarts, by the name of the device.
func (v survey) links() map[string][]string {
	links := map[string][]string{}
	for _, by := range []string{"by-id", "by-path"} {
		dir := filepath.Join(v.dev, "disk", by)
		names, err := readNames(dir)
		if err != nil {
			continue // no udev
		}
		slices.Sort(names)
		for _, name := range names {
			if to, err := os.Readlink(filepath.Join(dir, name)); err == nil {
				device := filepath.Base(to)
				links[device] = append(links[device], filepath.Join(dir, name))
			}
		}
	}
	return links
}

// uses tells who uses a device, by its name: file systems that are mounted on it or on something made of it, and swap. A
// container sees the mounts of others only in part: that a device is free is proved by opening it for ourselves alone.
func (v survey) uses() (map[string][]string, error) {
	mounts, err := readMounts(filepath.Join(v.proc, "self/mountinfo"))
	if err != nil {
		return nil, Errorf(KindInternal, "what is mounted on this node: %w", err)
	}
	uses := map[string][]string{}
	add := func(name, use string) {
		if !slices.Contains(uses[name], use) {
			uses[name] = append(uses[name], use)
		}
	}
	for number, places := range mounts {
		target, err := os.Readlink(filepath.Join(v.sys, "dev/block", number))
		if err != nil {
			continue // not a block device
		}
		name, place := filepath.Base(target), placeOf(places)
		add(name, "is mounted at "+place)
		v.below(name, func(part string) { add(part, "carries what is mounted at "+place) })
	}
	if err := v.loops(add); err != nil {
		return nil, err
	}
	swaps, err := os.ReadFile(filepath.Join(v.proc, "swaps"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, Errorf(KindInternal, "where this node swaps to: %w", err)
	}
	for line := range strings.Lines(string(swaps)) {
		path, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(path, "/dev/") {
			add(filepath.Base(path), "is swap space")
			v.below(filepath.Base(path), func(part string) { add(part, "carries swap space") })
		}
	}
	return uses, nil
}

// loops tells of the devices behind loop devices. No holder and no exclusive open shows them; the kubelet makes one for each
// raw block volume of a pod, whoever's volume that is, and it may be blank until the pod writes to it.
func (v survey) loops(add func(name, use string)) error {
	attached, err := filepath.Glob(filepath.Join(v.sys, "class/block/loop*/loop/backing_file"))
	if err != nil {
		return err
	}
	for _, file := range attached {
		loop := filepath.Base(filepath.Dir(filepath.Dir(file)))
		number, err := v.backing(filepath.Join(v.dev, loop))
		if errors.Is(err, unix.ENXIO) || errors.Is(err, os.ErrNotExist) {
			continue // it was detached meanwhile
		}
		if err != nil {
			return Errorf(KindInternal, "what the loop device %s is made of: %w", loop, err)
		}
		target, err := os.Readlink(filepath.Join(v.sys, "dev/block", numberOf(number)))
		if err != nil {
			continue // a file
		}
		add(filepath.Base(target), fmt.Sprintf("is behind %s, as a raw block volume of a pod is", loop))
		v.below(filepath.Base(target), func(part string) { add(part, "carries what is behind "+loop) })
	}
	return nil
}

// loopBacking asks a loop device what it is made of (loop(4), LOOP_GET_STATUS64).
func loopBacking(loop string) (uint64, error) {
	f, err := os.Open(loop)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return 0, err
	}
	return info.Rdevice, nil
}

// below calls do for each device that the named one is made of: the disk of a partition, the legs of a RAID, and so on.
func (v survey) below(name string, do func(string)) {
	folder, err := filepath.EvalSymlinks(filepath.Join(v.sys, "class/block", name))
	if err != nil {
		return
	}
	parts, _ := readNames(filepath.Join(folder, "slaves")) // a partition has none
	if _, err := os.Stat(filepath.Join(folder, "partition")); err == nil {
		parts = append(parts, filepath.Base(filepath.Dir(folder)))
	}
	for _, part := range parts {
		do(part)
		v.below(part, do)
	}
}

// placeOf names the mount that says most: the root, else the shortest.
func placeOf(places []string) string {
	return slices.MinFunc(places, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
}

// compareNames orders sda2 before sda10, and sdz before sdaa.
func compareNames(a, b string) int {
	if trimmed := func(s string) string { return strings.TrimRight(s, "0123456789") }; len(a) != len(b) && trimmed(a) == trimmed(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
