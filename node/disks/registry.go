package disks

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// Limits of the record: a lost disk is forgotten when it is of no use to a person any more, or when there are too many.
const (
	forgetAfter = 30 * 24 * time.Hour
	mostRecords = 512
)

// Registry is the record of the node's disks. Its methods are safe for concurrent use.
type Registry struct {
	file   string // where the record is kept; "": nowhere
	system system
	now    func() time.Time

	mu      sync.Mutex
	records map[string]report.LostDisk // by the PV's UUID
	paths   map[string]string          // PVs whose disk this process has read, with the path that it had
}

// New reads the record of an earlier run. After an error the record is empty, and the next Save replaces the file.
func New(file string) (*Registry, error) {
	r := &Registry{file: file, system: system{sys: "/sys", dev: "/dev"}, now: time.Now, paths: map[string]string{}}
	var err error
	r.records, err = load(file)
	return r, err
}

// Observe reads the disks of the physical volumes that are new or have moved, and forgets disks that were taken out of their group.
// It may wait for a disk.
func (r *Registry) Observe(inv report.Inventory) {
	for _, g := range inv.Groups {
		for _, pv := range g.PVs {
			if pv.Device == "" || pv.Missing || pv.Unresponsive {
				continue
			}
			disk, known := r.known(pv)
			if !known {
				disk = r.system.identify(pv.Device)
			}
			r.put(report.LostDisk{PV: pv.UUID, Group: g.Name, GroupUUID: g.UUID, Disk: disk}, pv.Device)
		}
	}
	r.forget(inv)
}

// known returns the disk of a PV that this process has read at the same path.
func (r *Registry) known(pv report.PV) (report.Disk, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, recorded := r.records[pv.UUID]
	return record.Disk, recorded && r.paths[pv.UUID] == pv.Device
}

func (r *Registry) put(record report.LostDisk, path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record.Seen = r.now().UTC().Truncate(time.Second)
	r.records[record.PV], r.paths[record.PV] = record, path
}

// forget drops the disks that are no longer part of their group, and the oldest.
func (r *Registry) forget(inv report.Inventory) {
	present, groups := presentIn(inv)
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.records, func(uuid string, d report.LostDisk) bool {
		return !present[uuid] && (groups[d.GroupUUID] || r.now().Sub(d.Seen) > forgetAfter)
	})
	for _, d := range r.sorted() {
		if len(r.records) <= mostRecords {
			return
		}
		delete(r.records, d.PV)
	}
}

// sorted lists the records, the one that was seen longest ago first.
func (r *Registry) sorted() []report.LostDisk {
	return slices.SortedFunc(maps.Values(r.records), func(a, b report.LostDisk) int {
		return cmp.Or(a.Seen.Compare(b.Seen), strings.Compare(a.PV, b.PV))
	})
}

func presentIn(inv report.Inventory) (pvs map[string]bool, groups map[lvm.VGUUID]bool) {
	pvs, groups = map[string]bool{}, map[lvm.VGUUID]bool{}
	for _, g := range inv.Groups {
		groups[g.UUID] = true
		for _, pv := range g.PVs {
			pvs[pv.UUID] = true
		}
	}
	return pvs, groups
}

// AddTo adds what is recorded to an inventory. It reads memory alone.
func (r *Registry) AddTo(inv *report.Inventory) {
	present, groups := presentIn(*inv)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range inv.Groups {
		for j := range inv.Groups[i].PVs {
			pv := &inv.Groups[i].PVs[j]
			if record, recorded := r.records[pv.UUID]; recorded {
				pv.Disk = &record.Disk
			}
		}
	}
	for _, d := range r.sorted() {
		if !present[d.PV] && !groups[d.GroupUUID] {
			inv.LostDisks = append(inv.LostDisks, d)
		}
	}
}

// In lists the recorded disks of a volume group, the one that was seen longest ago first.
func (r *Registry) In(group lvm.VGUUID) []report.LostDisk {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(r.sorted(), func(d report.LostDisk) bool { return d.GroupUUID != group })
}

// Describe adds to each UUID of a physical volume in a text which disk it is on.
func (r *Registry) Describe(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uuid, d := range r.records {
		if words := d.String(); words != "" && strings.Contains(text, uuid) {
			text = strings.ReplaceAll(text, uuid, uuid+" ("+words+")")
		}
	}
	return text
}

// Save writes the record to its file, if the file is not up to date.
func (r *Registry) Save() error {
	r.mu.Lock()
	records := r.sorted()
	r.mu.Unlock()
	return store(r.file, records)
}
