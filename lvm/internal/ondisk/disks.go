package ondisk

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/accepted"
)

// Disks reads the node's volume groups from the metadata areas of their PVs, without a process and without LVM's lock. An
// incomplete commit has a wrong checksum, and Disks reads it again. Of different copies the highest seqno wins, as it does for
// LVM. Disks uses a cached value only if the disks prove that it is current, or, marked as such, for an unresponsive disk. The
// zero value is ready to use and safe for concurrent use.
type Disks struct {
	Sys  string // mount point of sysfs; "" means /sys
	Proc string // mount point of procfs; "" means /proc
	Dev  string // folder of device nodes; "" means /dev. Another folder may have plain files instead.
	// Patience is how long a device may take to answer; 0 means 3 s. A disk with a long queue does answer, and its group must
	// not lose its capacity for a moment. A device that has never answered has three times as long: a disk may have to spin up,
	// and its group would be absent until it answers.
	Patience time.Duration
	Accepted *accepted.Record // names the PVs that this node's groups are on; nil: all devices that may have a PV are read

	probe   func(BlockDevice) probe            // a test's unresponsive disk; nil means a prober
	backing func(loop int) (loopStatus, error) // as in Positions

	scanner    scanner
	texts      groupTexts
	identities identities

	mu      sync.Mutex
	running map[string][]*time.Time // start times of unfinished readings, by device, oldest first
	last    map[string]probe        // the last answer of each device
}

// Read returns what the node's disks hold. It names unreadable and unresponsive devices in State.UnreadDevices. A group with an
// unresponsive PV has the values of the last reading, and a Problem. So has a group whose metadata cannot be read.
func (d *Disks) Read(ctx context.Context) (lvm.State, error) {
	if d.Accepted != nil {
		d.Accepted.Refresh()
	}
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
	probes, others, err := d.accept(ctx, probes, devices, r)
	if err != nil {
		return lvm.State{}, err
	}
	d.texts.keep(probes)
	s := assemble(probes, devices.component)
	s.Unaccepted, s.Unlabeled = d.recorded(others.Unaccepted, s.Groups), append(s.Unlabeled, others.Unlabeled...)
	s.UnreadDevices = append(s.UnreadDevices, others.UnreadDevices...)
	return s, nil
}

// prober returns the reader of single devices.
func (d *Disks) prober() prober {
	return prober{positions: d.positions(), mustBeBlock: d.Dev == "", texts: &d.texts, accepts: d.Accepts}
}

// positions returns the positions of this node's devices.
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

// lastOf returns the last answer of the same device.
func (d *Disks) lastOf(device BlockDevice) (p probe, answered bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, answered = d.last[device.Name]
	if p.device != device {
		return probe{}, false
	}
	return p, answered
}

// forget drops the answers of removed devices.
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

// gone reports whether a device was removed since it was listed, as loop devices often are, is another one now, or is empty:
// then it is no unreadable device.
func (d *Disks) gone(device BlockDevice) bool {
	where := d.positions()
	size, err := dm.Attribute(where.Sys, device.Name, "size")
	return dm.IsVanished(err) || err == nil && size == "0" || dm.IsVanished(where.unchanged(device))
}

// begin records that a reading of a device starts; finish records its answer.
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

// reading returns since when a device has not answered; ok is false if no reading waits.
func (d *Disks) reading(name string) (since time.Time, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if under := d.running[name]; len(under) > 0 {
		return *under[0], true
	}
	return time.Time{}, false
}
