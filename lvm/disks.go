package lvm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
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
	// Patience is how long a device may take to answer; 0 means 1 s. One that has never answered yet has ten times as
	// long: a resting disk needs that to spin up, and without an answer its group would be absent.
	Patience time.Duration

	probe func(blockDevice) probe // tests put a disk that hangs here; nil means a prober

	scanner scanner
	texts   groupTexts

	mu      sync.Mutex
	running map[string][]*time.Time // when each reading that is under way began, by device, oldest first
	last    map[string]probe        // what each device said when it last answered
}

// Read answers what the node's disks hold. Devices that fail or do not answer are named in State.Unread; a group with a
// PV that does not answer is shown as it was, with a Problem. Where a group's metadata is of a kind that only LVM can
// judge, the error wraps errUnsupported and the State has the others.
func (d *Disks) Read(ctx context.Context) (State, error) {
	devices, err := d.scanner.scan(ctx, cmp.Or(d.Sys, "/sys"), cmp.Or(d.Proc, "/proc"), cmp.Or(d.Dev, "/dev"))
	if err != nil {
		return State{}, err
	}
	probes, err := d.probeAll(ctx, devices.list)
	if err != nil {
		return State{}, err
	}
	d.texts.keep(probes)
	return assemble(probes, devices.component)
}

// probeAll reads all devices side by side: a disk that hangs delays one reading by Patience and later ones not at all,
// for it is not asked again until it has answered.
func (d *Disks) probeAll(ctx context.Context, list []blockDevice) ([]probe, error) {
	d.forget(list)
	read := prober{mustBeBlock: d.Dev == "", texts: &d.texts}
	results := make(chan probe, len(list))
	waiting := map[string]time.Time{} // until when
	silent := map[string]probe{}      // what to say of a device that does not answer
	var done []probe
	for _, device := range list {
		before, answered := d.lastOf(device)
		silent[device.name] = probe{device: device, label: before.label, areas: before.areas, err: errSilent}
		until, finish := d.begin(device.name, d.patience(answered))
		if finish == nil {
			done = append(done, silent[device.name])
			continue
		}
		waiting[device.name] = until
		go func() {
			var p probe
			if d.probe != nil {
				p = d.probe(device)
			} else {
				p = read.probe(device, before)
			}
			finish(p)
			results <- p
		}()
	}
	for len(waiting) > 0 {
		next := earliest(waiting)
		select {
		case p := <-results:
			if _, wanted := waiting[p.device.name]; wanted {
				done = append(done, p)
				delete(waiting, p.device.name)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the disks of this node: %w", ctx.Err())
		case <-time.After(time.Until(waiting[next])):
			done = append(done, silent[next])
			delete(waiting, next)
		}
	}
	return done, nil
}

func earliest(waiting map[string]time.Time) (name string) {
	for n, until := range waiting {
		if name == "" || until.Before(waiting[name]) {
			name = n
		}
	}
	return name
}

func (d *Disks) patience(answered bool) time.Duration {
	patience := cmp.Or(d.Patience, time.Second)
	if !answered {
		patience *= 10
	}
	return patience
}

// lastOf answers what the very same device said when it last answered.
func (d *Disks) lastOf(device blockDevice) (p probe, answered bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, answered = d.last[device.name]
	if p.device != device {
		return probe{}, false
	}
	return p, answered
}

// forget drops what devices said that are gone.
func (d *Disks) forget(list []blockDevice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.last) <= len(list) {
		return
	}
	for name := range d.last {
		if !slices.ContainsFunc(list, func(b blockDevice) bool { return b.name == name }) {
			delete(d.last, name)
		}
	}
}

// begin notes that a device is being read, and until when to wait for it; finish is nil where an earlier reading has
// gone on for longer than patience.
func (d *Disks) begin(name string, patience time.Duration) (until time.Time, finish func(probe)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	until = now.Add(patience)
	if under := d.running[name]; len(under) > 0 {
		if until = under[0].Add(patience); now.After(until) {
			return until, nil
		}
	}
	if d.running == nil {
		d.running, d.last = map[string][]*time.Time{}, map[string]probe{}
	}
	d.running[name] = append(d.running[name], &now)
	return until, func(p probe) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.running[name] = slices.DeleteFunc(d.running[name], func(began *time.Time) bool { return began == &now }); len(d.running[name]) == 0 {
			delete(d.running, name)
		}
		d.last[name] = p
	}
}
