package host

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// zeroedWatch keeps what is known to be zero in each group true, from reading to reading. Readings overlap each other and the
// driver's own commands, so both are numbered: what is read while a command of ours runs, or began before the last one ended,
// tells nothing.
type zeroedWatch struct {
	mu     sync.Mutex
	files  zeroedFiles
	after  func(time.Duration, func()) // runs it later, unless the Host closes before
	clock  int64
	groups map[string]*zeroedGroup // by UUID
}

// zeroedGroup is what is known of one group, and what has happened in it since.
type zeroedGroup struct {
	zeroed
	name    string
	since   int64          // of the clock: a reading that began before says nothing new
	running int            // own commands under way
	own     int64          // commits of own commands since the last reading
	gained  alloc.RunsByPV // what they gave back zeroed
	saving  bool           // a write of the file is due
}

// zeroedSave is how long a change waits for others before the file is written.
const zeroedSave = time.Second

// begin makes the watch remember; files is where, none for a node without a folder.
func (w *zeroedWatch) begin(files zeroedFiles, after func(time.Duration, func())) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files, w.after, w.groups = files, after, map[string]*zeroedGroup{}
}

// reading begins a reading of the disks.
func (w *zeroedWatch) reading() (ticket int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	return w.clock
}

// read takes what a reading has found.
func (w *zeroedWatch) read(ticket int64, s lvm.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	here := make(map[string]bool, len(s.Groups))
	for _, g := range s.Groups {
		here[g.UUID] = true
		w.group(ticket, g)
	}
	for uuid, e := range w.groups {
		if !here[uuid] && e.running == 0 && ticket > e.since {
			delete(w.groups, uuid) // its file counts when it comes back as it was
		}
	}
}

func (w *zeroedWatch) group(ticket int64, g lvm.Group) {
	e := w.groups[g.UUID]
	if e == nil {
		e = &zeroedGroup{zeroed: w.files.load(g), name: g.Name}
		w.groups[g.UUID] = e
	}
	if e.running > 0 || ticket < e.since {
		return
	}
	if e.same(g) && e.own == 0 && e.gained == nil && !vouchedFor(g) && !e.runs.Away(g) {
		return
	}
	now := e.after(g, e.own, e.gained)
	changed := now.seqno != e.seqno || !maps.EqualFunc(now.runs, e.runs, slices.Equal)
	e.zeroed, e.name, e.own, e.gained, e.since = now, g.Name, 0, nil, w.clock
	if changed {
		w.saveLater(g.UUID, e)
	}
}

// started and ended enclose own commands; commits is how often they commit at most, 0 if they failed.
func (w *zeroedWatch) started(group string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.groups[group]; e != nil {
		e.running++
	}
}

func (w *zeroedWatch) ended(group string, commits int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	if e := w.groups[group]; e != nil {
		e.running--
		e.own += commits
		e.since = w.clock
	}
}

// gains notes what the next own command gives back zeroed, if it does so.
func (w *zeroedWatch) gains(group string, runs alloc.RunsByPV) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.groups[group]; e != nil {
		e.gained = e.gained.With(runs)
	}
}

// show adds what is known to the groups of a reading, which nobody else may hold; nothing to one that is not as it was known.
func (w *zeroedWatch) show(g *lvm.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.groups[g.UUID]
	if e == nil || e.running > 0 || !e.same(*g) || len(e.runs) == 0 {
		return
	}
	pvs := make([]lvm.PV, len(g.PVs))
	copy(pvs, g.PVs)
	for i := range pvs {
		pvs[i].Zeroed = e.runs[pvs[i].UUID]
	}
	g.PVs = pvs
}

func (w *zeroedWatch) saveLater(uuid string, e *zeroedGroup) {
	if e.saving || w.files.dir == "" {
		return
	}
	e.saving = true
	w.after(zeroedSave, func() { w.save(uuid) })
}

// save writes a group's file as it is known now.
func (w *zeroedWatch) save(uuid string) {
	w.mu.Lock()
	e := w.groups[uuid]
	if e == nil || !e.saving {
		w.mu.Unlock()
		return
	}
	e.saving = false
	name, z := e.name, e.zeroed
	w.mu.Unlock()
	w.files.save(uuid, name, z)
}

// saveAll writes what is still to be written.
func (w *zeroedWatch) saveAll() {
	w.mu.Lock()
	uuids := make([]string, 0, len(w.groups))
	for uuid := range w.groups {
		uuids = append(uuids, uuid)
	}
	w.mu.Unlock()
	for _, uuid := range uuids {
		w.save(uuid)
	}
}
