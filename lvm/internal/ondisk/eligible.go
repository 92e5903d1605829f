package ondisk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// Disk is a block device of the node, with everything that determines whether it can become a physical volume.
type Disk struct {
	BlockDevice
	position
	Links        []string // its other names, below /dev/disk
	Model        string   // as the hardware reports it; "" if it does not
	Rotational   bool
	readOnly     bool
	zoned        bool // writes must be in its zones' order
	removable    bool
	unresponsive bool
	remote       bool // on a storage network, where other hosts may use it
	virtual      bool // the kernel creates it from something else: loop, md, device-mapper, zram, nbd, ...

	holders []string   // devices that are made of it
	parts   []string   // its partitions
	uses    []string   // sentences: what uses it, as far as this process can see
	Group   lvm.VGName // of its physical volume
	pv      *probe     // its physical volume; nil: none
}

// IsUnaccepted reports whether the device is a physical volume that the node's record does not name.
func (d Disk) IsUnaccepted() bool { return d.pv != nil && d.pv.unaccepted }

// Names returns all names that a pattern may match.
func (d Disk) Names() []string { return append([]string{d.Path}, d.Links...) }

// DeviceScanner scans the node's devices.
type DeviceScanner struct {
	Positions
	Reader *Disks // reads the devices, and waits for none that does not answer
}

// Disks lists the node's block devices. It omits LVM's own volumes, devices that are too small for a physical volume, and
// hidden paths of others.
func (v DeviceScanner) Disks(ctx context.Context, s lvm.State) ([]Disk, error) {
	found, err := new(scanner).scan(ctx, v.Sys, v.Proc, v.Dev)
	if err != nil {
		return nil, err
	}
	uses, err := v.uses()
	if err != nil {
		return nil, err
	}
	r := v.Reader.prober()
	r.positions.volumes = found.volumes
	probes, err := v.Reader.scanDevices(ctx, found.list, r)
	if err != nil {
		return nil, err
	}
	links, groups := v.links(), map[string]lvm.VGName{}
	for _, g := range s.Groups {
		for _, pv := range g.PVs {
			groups[pv.Device] = g.Name
		}
	}
	var list []Disk
	for _, p := range probes {
		b := p.device
		if text, err := dm.Attribute(v.Sys, b.Name, "hidden"); err == nil && text == "1" {
			continue
		}
		d, err := v.inspect(b)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue // it was removed
		}
		if err != nil {
			return nil, lvm.Errorf(lvm.KindInternal, "cannot read block device %s: %w", b.Path, err)
		}
		d.Links, d.uses, d.Group = links[b.Name], uses[b.Name], groups[b.Path]
		d.position, d.unresponsive = p.position, p.unresponsive()
		if p.label != nil {
			d.pv = &p
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Disk) int { return compareNames(a.Path, b.Path) })
	return list, nil
}

// inspect reads one device's properties from sysfs. A partition has those of its disk.
func (v DeviceScanner) inspect(device BlockDevice) (Disk, error) {
	d := Disk{BlockDevice: device}
	folder, err := filepath.EvalSymlinks(filepath.Join(v.Sys, "class/block", device.Name))
	if err != nil {
		return d, err
	}
	text := func(files ...string) string {
		for _, file := range files {
			if text, err := os.ReadFile(filepath.Join(folder, file)); err == nil { // for a partition, ".." is its disk
				return strings.TrimSpace(string(text))
			}
		}
		return ""
	}
	d.Model = strings.Join(strings.Fields(text("device/model", "../device/model")), " ")
	d.Rotational = text("queue/rotational", "../queue/rotational") == "1"
	d.readOnly = text("ro") != "0" // an unknown value counts as read-only
	d.zoned = text("queue/zoned", "../queue/zoned") == "host-managed"
	d.removable = text("removable", "../removable") == "1"
	d.virtual = strings.Contains(folder, "/devices/virtual/") || strings.HasPrefix(device.Name, "rbd")
	d.remote = remotePath.MatchString(folder)
	if d.holders, err = dm.ReadNames(filepath.Join(folder, "holders")); err != nil {
		return d, err
	}
	entries, err := dm.ReadNames(folder)
	for _, name := range entries {
		if _, err := os.Stat(filepath.Join(folder, name, "partition")); err == nil && !device.partition {
			d.parts = append(d.parts, name)
		}
	}
	return d, err
}

// remotePath matches the sysfs path of a disk on iSCSI or Fibre Channel (Linux, scsi_transport_iscsi.c, scsi_transport_fc.c).
// One on NVMe over Fabrics is below /devices/virtual.
var remotePath = regexp.MustCompile(`/(session[0-9]+|rport-[0-9:-]+)/`)

// links returns the persistent names below /dev/disk, by the name of the device.
func (v DeviceScanner) links() map[string][]string {
	links := map[string][]string{}
	for _, by := range []string{"by-id", "by-path"} {
		dir := filepath.Join(v.Dev, "disk", by)
		names, err := dm.ReadNames(dir)
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

// uses returns what uses each device, by its name: swap, and mounts of the device or of something made of it. A container sees
// only some mounts of other containers; an exclusive open proves that a device is unused.
func (v DeviceScanner) uses() (map[string][]string, error) {
	mounts, err := dm.ReadMounts(filepath.Join(v.Proc, "self/mountinfo"))
	if err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "cannot read the mounts of this node: %w", err)
	}
	uses := map[string][]string{}
	add := func(name, use string) {
		if !slices.Contains(uses[name], use) {
			uses[name] = append(uses[name], use)
		}
	}
	points := map[uint64][]string{} // by the device's number
	for _, m := range mounts {
		points[m.Device()] = append(points[m.Device()], m.Point)
	}
	for number, places := range points {
		name, place := v.nameOf(number), placeOf(places)
		if name == "" {
			continue // not a block device
		}
		add(name, "is mounted at "+place)
		v.eachBelow(name, 0, func(part string) { add(part, "carries what is mounted at "+place) })
	}
	// A loop device is no holder, and does not prevent an exclusive open. The kubelet creates one for each raw block volume of a pod, and
	// the volume, of any CSI driver, may be blank until the pod writes to it.
	err = v.eachLoop(func(loop, device string) {
		add(device, fmt.Sprintf("is the backing device of %s, as of a raw block volume of a pod", loop))
		v.eachBelow(device, 0, func(part string) { add(part, "carries the backing device of "+loop) })
	})
	if err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "%w", err)
	}
	swaps, err := os.ReadFile(filepath.Join(v.Proc, "swaps"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, lvm.Errorf(lvm.KindInternal, "cannot read the swap space of this node: %w", err)
	}
	for line := range strings.Lines(string(swaps)) {
		path, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(path, "/dev/") {
			add(filepath.Base(path), "is swap space")
			v.eachBelow(filepath.Base(path), 0, func(part string) { add(part, "carries swap space") })
		}
	}
	return uses, nil
}

// placeOf returns the shortest mount point, and so the root before all others.
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
