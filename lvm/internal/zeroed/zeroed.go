// Package zeroed keeps which free extents of each volume group are known to be zero, from read to read (Watch) and across
// restarts (Files).
package zeroed

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// A user of a raw block volume can read every byte of it, also bytes that no process has written since its creation. LVM leaves
// old data in extents: after pvmove, lvconvert --repair, an admin's lvremove, or on a used disk. So a Host knows for each group
// which free extents are zero: those that it zeroed and freed itself. It zeroes all others before they become part of such a
// volume (lvm/host, create.go and extend.go). File systems and thin pools never show a block that was not written. The group's seqno
// keeps the knowledge true: to allocate an extent and free it again takes two commits.

// knowledge is what a Host knows of one group at one commit.
type knowledge struct {
	seqno    int64
	checksum uint32 // of the metadata's text
	runs     alloc.RunsByPV
}

// vouched is the prefix of a tag by which an admin vouches that all free extents of the group are zero. It ends in the seqno of
// the commit that adds it, so that it does not apply after any later commit.
const vouched = lvm.TagPrefix + "zeroed="

// after returns what is known of the group's current state. own bounds how many commits since z are this driver's; gained are
// the zeroed extents that they freed. One commit of another program can allocate an extent or free one, not both; after two or
// more nothing is known.
func (z knowledge) after(g lvm.Group, own int64, gained alloc.RunsByPV) knowledge {
	now := knowledge{seqno: g.Seqno, checksum: g.Checksum}
	commits := g.Seqno - z.seqno
	switch {
	case vouchedFor(g):
		now.runs = alloc.FreeRuns(g)
	case len(z.runs) == 0 && len(gained) == 0:
		// nothing is known
	case commits == 0 && z.same(g):
		now.runs = z.runs.Within(g)
	case commits > 0 && commits <= max(1, own):
		now.runs = z.runs.With(gained).Within(g)
	}
	return now
}

// vouchedFor reports whether an admin vouched for the group at this very commit.
func vouchedFor(g lvm.Group) bool {
	return slices.Contains(g.Tags, vouched+strconv.FormatInt(g.Seqno, 10))
}

// same reports whether g is the group at the very commit of z.
func (z knowledge) same(g lvm.Group) bool {
	return z.seqno == g.Seqno && z.checksum == g.Checksum
}

// Watch keeps the known zero extents of each group true from read to read. Reads overlap each other and the driver's own
// commands, so it numbers both: a read that began before the driver's last command ended changes nothing.
type Watch struct {
	mu     sync.Mutex
	files  Files
	after  func(time.Duration, func()) // runs a function later, unless the Host closes before
	clock  int64
	groups map[lvm.VGUUID]*watchedGroup // by UUID
}

// watchedGroup is what is known of one group, and what happened in it since.
type watchedGroup struct {
	knowledge
	name    lvm.VGName
	since   int64          // clock value: an earlier read says nothing new
	running int            // own commands that are running
	own     int64          // commits of own commands since the last read
	gained  alloc.RunsByPV // the zeroed extents that they freed
	saving  bool           // a write of the file is due
}

// savePause is how long a change waits for others before the driver writes the file.
const savePause = time.Second

// Begin starts recording; files is where to, without a directory nowhere.
func (w *Watch) Begin(files Files, after func(time.Duration, func())) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.files, w.after, w.groups = files, after, map[lvm.VGUUID]*watchedGroup{}
}

// Reading returns the ticket for a read of the disks.
func (w *Watch) Reading() (ticket int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	return w.clock
}

// Read processes the result of a read.
func (w *Watch) Read(ticket int64, s lvm.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	here := make(map[lvm.VGUUID]bool, len(s.Groups))
	for _, g := range s.Groups {
		here[g.UUID] = true
		w.group(ticket, g)
	}
	for uuid, e := range w.groups {
		if !here[uuid] && e.running == 0 && ticket > e.since {
			delete(w.groups, uuid) // its file counts if it returns unchanged
		}
	}
}

func (w *Watch) group(ticket int64, g lvm.Group) {
	e := w.groups[g.UUID]
	if e == nil {
		e = &watchedGroup{knowledge: w.files.load(g), name: g.Name}
		w.groups[g.UUID] = e
	}
	if e.running > 0 || ticket < e.since {
		return
	}
	if e.same(g) && e.own == 0 && e.gained == nil && !vouchedFor(g) && (len(e.runs) == 0 || !e.runs.Away(g)) {
		return
	}
	now := e.after(g, e.own, e.gained)
	changed := now.seqno != e.seqno || !maps.EqualFunc(now.runs, e.runs, slices.Equal)
	e.knowledge, e.name, e.own, e.gained, e.since = now, g.Name, 0, nil, w.clock
	if changed {
		w.saveLater(g.UUID, e)
	}
}

// Started and ended enclose the driver's commands; commits is their maximal number of commits, 0 if they failed.
func (w *Watch) Started(group lvm.VGUUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.groups[group]; e != nil {
		e.running++
	}
}

func (w *Watch) Ended(group lvm.VGUUID, commits int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock++
	if e := w.groups[group]; e != nil {
		e.running--
		e.own += commits
		e.since = w.clock
	}
}

// Gains records the zeroed extents that the next own command frees, if it does.
func (w *Watch) Gains(group lvm.VGUUID, runs alloc.RunsByPV) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.groups[group]; e != nil {
		e.gained = e.gained.With(runs)
	}
}

// Show adds what is known to a group of a read that the caller alone holds. It adds nothing if the group has changed since.
func (w *Watch) Show(g *lvm.Group) {
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

func (w *Watch) saveLater(uuid lvm.VGUUID, e *watchedGroup) {
	if e.saving || w.files.Dir == "" {
		return
	}
	e.saving = true
	w.after(savePause, func() { w.save(uuid) })
}

// save writes what is known of a group to its file.
func (w *Watch) save(uuid lvm.VGUUID) {
	w.mu.Lock()
	e := w.groups[uuid]
	if e == nil || !e.saving {
		w.mu.Unlock()
		return
	}
	e.saving = false
	name, z := e.name, e.knowledge
	w.mu.Unlock()
	w.files.save(uuid, name, z)
}

// SaveAll writes all files that are due.
func (w *Watch) SaveAll() {
	w.mu.Lock()
	uuids := make([]lvm.VGUUID, 0, len(w.groups))
	for uuid := range w.groups {
		uuids = append(uuids, uuid)
	}
	w.mu.Unlock()
	for _, uuid := range uuids {
		w.save(uuid)
	}
}
