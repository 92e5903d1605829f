package lvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Disks reads the node's volume groups straight from the metadata areas of their PVs, without a process and without
// LVM's lock. A commit seen half-way shows as a wrong checksum and is read again; of copies that differ, the highest
// seqno wins, as it does for LVM. The zero value is ready to use and safe for concurrent use.
type Disks struct {
	Sys      string        // where sysfs is mounted; "" means /sys
	Dev      string        // where device nodes are; "" means /dev. Another folder may hold plain files in their place.
	Patience time.Duration // how long a device may take to answer; 0 means 10 s (a resting disk needs that to spin up)

	probe func(blockDevice) probe // tests put a disk that hangs here; nil means probeDevice

	mu      sync.Mutex
	running map[string][]*time.Time // when each reading that is under way began, by device, oldest first
}

// Read answers what the node's disks hold. Devices that fail or do not answer are named in State.Unread. Where
// a group's metadata is of a kind that only LVM can judge, the error wraps errUnsupported and the State has the others.
func (d *Disks) Read(ctx context.Context) (State, error) {
	devices, err := scanDevices(ctx, cmp.Or(d.Sys, "/sys"), cmp.Or(d.Dev, "/dev"))
	if err != nil {
		return State{}, err
	}
	probes, err := d.probeAll(ctx, devices.list)
	if err != nil {
		return State{}, err
	}
	return assemble(probes, devices.component)
}

// probeAll reads all devices side by side: a disk that hangs delays one call by Patience and later ones not at all,
// for it is not asked again until it has answered.
func (d *Disks) probeAll(ctx context.Context, list []blockDevice) ([]probe, error) {
	patience := cmp.Or(d.Patience, 10*time.Second)
	read := d.probe
	if read == nil {
		read = func(device blockDevice) probe { return probeDevice(device, d.Dev == "") }
	}
	results := make(chan probe, len(list))
	waiting := map[string]blockDevice{}
	var done []probe
	for _, device := range list {
		finish, silent := d.begin(device.name, patience)
		if silent {
			done = append(done, probe{device: device, err: errSilent})
			continue
		}
		waiting[device.name] = device
		go func() {
			p := read(device)
			finish()
			results <- p
		}()
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for len(waiting) > 0 {
		select {
		case p := <-results:
			done = append(done, p)
			delete(waiting, p.device.name)
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the disks of this node: %w", ctx.Err())
		case <-timeout.C:
			for _, device := range waiting {
				done = append(done, probe{device: device, err: errSilent})
			}
			return done, nil
		}
	}
	return done, nil
}

var errSilent = errors.New("it does not answer")

// begin notes that a device is being read, unless an earlier reading has gone on for longer than patience.
func (d *Disks) begin(name string, patience time.Duration) (finish func(), silent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if under := d.running[name]; len(under) > 0 && time.Since(*under[0]) > patience {
		return nil, true
	}
	if d.running == nil {
		d.running = map[string][]*time.Time{}
	}
	now := time.Now()
	d.running[name] = append(d.running[name], &now)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.running[name] = slices.DeleteFunc(d.running[name], func(began *time.Time) bool { return began == &now })
	}, false
}

// assemble puts the groups together from what each device says. component tells the devices that only stand behind
// another one.
func assemble(probes []probe, component func(name string) (bool, error)) (State, error) {
	var state State
	var pvs []probe
	for _, p := range probes {
		if p.label != nil {
			part, err := component(p.device.name)
			if part {
				continue
			}
			p.err = errors.Join(p.err, err)
			pvs = append(pvs, p)
		}
		if p.err != nil {
			state.Unread = append(state.Unread, fmt.Sprintf("%s could not be read: %v", p.device.path, p.err))
		}
	}
	copies, refused := readCopies(pvs)
	present := byUUID(pvs)
	for _, c := range newest(copies, &refused) {
		if err := c.checkMembers(present, copies); err != nil {
			refused = append(refused, err)
			continue
		}
		c.attach(present)
		state.Groups = append(state.Groups, c.group)
	}
	sortState(&state)
	return state, errors.Join(refused...)
}

// metadataCopy is one distinct text and the PVs that carry it.
type metadataCopy struct {
	*imported
	checksum uint32
	holders  []string // PV UUIDs
}

// readCopies imports each distinct text once: the PVs of a healthy group all hold the same one.
func readCopies(pvs []probe) (copies []*metadataCopy, refused []error) {
	type key struct {
		checksum uint32
		text     string
	}
	seen := map[key]*metadataCopy{}
	for _, p := range pvs {
		for _, a := range p.areas {
			if len(a.text) == 0 {
				continue
			}
			k := key{a.header.checksum, string(a.text)}
			c, known := seen[k]
			if !known {
				im, err := importGroup(k.text)
				if err != nil {
					refused = append(refused, fmt.Errorf("%s: %w", p.device.path, err))
				} else {
					c = &metadataCopy{imported: im, checksum: k.checksum}
					copies = append(copies, c)
				}
				seen[k] = c
			}
			if c != nil {
				c.holders = append(c.holders, p.label.uuid)
			}
		}
	}
	return copies, refused
}

// newest picks each group's text of the highest seqno. Two texts of one seqno are for LVM to judge.
func newest(copies []*metadataCopy, refused *[]error) []*metadataCopy {
	slices.SortStableFunc(copies, func(a, b *metadataCopy) int {
		return cmp.Or(cmp.Compare(a.group.UUID, b.group.UUID), cmp.Compare(b.group.Seqno, a.group.Seqno))
	})
	var best []*metadataCopy
	for i, c := range copies {
		if i > 0 && copies[i-1].group.UUID == c.group.UUID {
			continue
		}
		if i+1 < len(copies) && copies[i+1].group.UUID == c.group.UUID && copies[i+1].group.Seqno == c.group.Seqno {
			*refused = append(*refused, unsupported("volume group %s: two different texts bear the seqno %d", c.group.Name, c.group.Seqno))
			continue
		}
		best = append(best, c)
	}
	return best
}

func byUUID(pvs []probe) map[string][]probe {
	index := map[string][]probe{}
	for _, p := range pvs {
		index[p.label.uuid] = append(index[p.label.uuid], p)
	}
	return index
}

// checkMembers refuses a group that claims a PV whose own metadata speaks of another group: it was moved behind the
// first one's back.
func (c *metadataCopy) checkMembers(present map[string][]probe, all []*metadataCopy) error {
	for _, other := range all {
		if other.group.UUID == c.group.UUID {
			continue
		}
		for _, holder := range other.holders {
			if _, member := c.needs[holder]; member && len(present[holder]) > 0 {
				return unsupported("volume group %s: its physical volume %s says that it belongs to %s", c.group.Name, holder, other.group.Name)
			}
		}
	}
	return nil
}

// attach fills in what only the devices tell: where each PV is, and how much room the metadata areas have.
func (c *metadataCopy) attach(present map[string][]probe) {
	g := &c.group
	first := true
	for i := range g.PVs {
		pv := &g.PVs[i]
		found := present[pv.UUID]
		if len(found) == 0 {
			pv.Missing = true
			continue
		}
		if len(found) > 1 {
			c.hurdles.duplicates = append(c.hurdles.duplicates, duplicateSentence(pv.UUID, paths(found)...))
		}
		if !pv.Missing {
			pv.Device = slices.Min(paths(found))
		}
		if size := found[0].device.size; size < c.needs[pv.UUID] {
			c.hurdles.shrunken = append(c.hurdles.shrunken, shrunkenSentence(found[0].device.path, size, c.needs[pv.UUID]))
		}
		for _, a := range found[0].areas {
			size, free := usable(a.header.size), a.header.free()
			if first || size < g.MDASize {
				g.MDASize = size
			}
			if first || free < g.MDAFree {
				g.MDAFree = free
			}
			first = false
		}
	}
	g.Problem = c.hurdles.problem(g.Name)
	settleGroup(g)
}

func paths(probes []probe) []string {
	var list []string
	for _, p := range probes {
		list = append(list, p.device.path)
	}
	return list
}
