package ondisk

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Disks reads the node's volume groups straight from the metadata areas of their PVs, without a process and without
// LVM's lock. A commit seen half-way shows as a wrong checksum and is read again; of copies that differ, the highest
// seqno wins, as it does for LVM. What is remembered from one reading to the next is used only where the disks prove
// that it still holds, or, marked as such, of a disk that does not answer. The zero value is ready to use and safe for
// concurrent use.
type Disks struct {
	Sys  string // where sysfs is mounted; "" means /sys
	Proc string // where procfs is mounted; "" means /proc
	Dev  string // where device nodes are; "" means /dev. Another folder may hold plain files in their place.
	// Patience is how long a device may take to answer; 0 means 3 s: a disk with a long queue does answer, and its group
	// should not give nothing for a moment. One that has never answered yet has three times as long: a resting disk needs that
	// to spin up, and without an answer its group would be absent.
	Patience time.Duration

	probe   func(BlockDevice) probe            // tests put a disk that hangs here; nil means a prober
	backing func(loop int) (loopStatus, error) // as in positions

	scanner scanner
	texts   groupTexts

	mu      sync.Mutex
	running map[string][]*time.Time // when each reading that is under way began, by device, oldest first
	last    map[string]probe        // what each device said when it last answered
}

// Read answers what the node's disks hold. Devices that fail or do not answer are named in State.Unread; a group with a
// PV that does not answer is shown as it was, with a Problem. Where a group's metadata is of a kind that only LVM can
// judge, the error wraps errUnsupported and the State has the others.
func (d *Disks) Read(ctx context.Context) (lvm.State, error) {
	r := d.prober()
	devices, err := d.scanner.scan(ctx, r.positions.Sys, r.positions.Proc, r.positions.Dev)
	if err != nil {
		return lvm.State{}, err
	}
	r.positions.volumes = devices.volumes
	d.forget(devices.list)
	probes, err := d.scanDevices(ctx, devices.list, r)
	if err != nil {
		return lvm.State{}, err
	}
	d.texts.keep(probes)
	return assemble(probes, devices.component)
}

// prober reads single devices.
func (d *Disks) prober() prober {
	return prober{positions: d.positions(), mustBeBlock: d.Dev == "", texts: &d.texts}
}

// positions are those of the node whose disks are read.
func (d *Disks) positions() Positions {
	return Positions{Sys: cmp.Or(d.Sys, "/sys"), Proc: cmp.Or(d.Proc, "/proc"), Dev: cmp.Or(d.Dev, "/dev"), backing: d.backing}
}

func (d *Disks) patience(answered bool) time.Duration {
	patience := cmp.Or(d.Patience, 3*time.Second)
	if !answered {
		patience *= 3
	}
	return patience
}

// lastOf answers what the very same device said when it last answered.
func (d *Disks) lastOf(device BlockDevice) (p probe, answered bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, answered = d.last[device.Name]
	if p.device != device {
		return probe{}, false
	}
	return p, answered
}

// forget drops what devices said that are gone.
func (d *Disks) forget(list []BlockDevice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.last) <= len(list) {
		return
	}
	for name := range d.last {
		if !slices.ContainsFunc(list, func(b BlockDevice) bool { return b.Name == name }) {
			delete(d.last, name)
		}
	}
}

// gone tells whether a device has left the node since it was listed, as loop devices do all the time, has become another one,
// or has nothing in it any more: then it is not one that cannot be read.
func (d *Disks) gone(device BlockDevice) bool {
	where := d.positions()
	b := blockDevices{sys: where.Sys}
	size, err := b.attribute(device.Name, "size")
	return Vanished(err) || err == nil && string(size) == "0" || Vanished(where.unchanged(device))
}

// begin notes that a device is being read; finish takes what it answered.
func (d *Disks) begin(name string) (finish func(probe)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running == nil {
		d.running, d.last = map[string][]*time.Time{}, map[string]probe{}
	}
	now := time.Now()
	d.running[name] = append(d.running[name], &now)
	return func(p probe) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.running[name] = slices.DeleteFunc(d.running[name], func(began *time.Time) bool { return began == &now })
		if len(d.running[name]) == 0 {
			delete(d.running, name)
		}
		d.last[name] = p
	}
}

// reading tells since when a device owes an answer; ok is false if it owes none.
func (d *Disks) reading(name string) (since time.Time, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if under := d.running[name]; len(under) > 0 {
		return *under[0], true
	}
	return time.Time{}, false
}
