package accepted

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Record is the node's record of accepted physical volumes. Its methods are safe for concurrent use.
type Record struct {
	File        string
	KubeletDir  string // "": the node has no kubelet.
	Driver      string // Name of this CSI driver.
	DevicesFile string // The host's devices file; "": it is not used.
	ReadOnly    bool   // Decide as the driver does, but write nothing.
	Log         *slog.Logger

	mu      sync.Mutex
	entries []Entry
	unsaved []Entry // Accepted, but not in the file, because that cannot be written.
	first   bool    // Nothing is recorded yet.
	absent  bool    // There is no file that can be read.
	begun   bool    // The file was looked for.
	read    stamp   // Of the file as read last; zero: it was missing.
	warned  string  // The last warning.
	refused map[key]refusal
}

type key struct {
	pv string
	id Identity
}

// refusal is a verdict that is not asked for again for a while: the next one needs the node's loop devices and mounts.
type refusal struct {
	Verdict
	since, until time.Time
	listed       bool
}

// refusalFor is how long a refusal lasts. A change of the file ends it.
const refusalFor = 10 * time.Second

// Refresh reads the file if it has changed. Each reading of the disks begins with it.
func (r *Record) Refresh() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refresh()
}

func (r *Record) refresh() {
	now, err := stampOf(r.File)
	if r.begun && now == r.read {
		return
	}
	var entries []Entry
	if err == nil {
		entries, err = load(r.File)
	}
	if _, failed := errors.AsType[*fs.PathError](err); failed && r.begun && !errors.Is(err, fs.ErrNotExist) {
		r.warn("cannot read the record of accepted physical volumes: the driver uses what it read last", err)
		return
	}
	r.read, r.begun, r.refused = now, true, nil
	r.entries, r.absent = entries, err != nil
	r.first = r.absent
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.warn("cannot read the record of accepted physical volumes: the driver records again what is on the node", err)
	}
}

// First reports whether no driver has recorded anything on this node yet.
func (r *Record) First() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// Entries returns the accepted physical volumes.
func (r *Record) Entries() []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all()
}

func (r *Record) all() []Entry {
	all := r.entries
	for _, e := range r.unsaved {
		all = beside(all, e)
	}
	return all
}

// Names reports whether the record names this PV on this device.
func (r *Record) Names(pv string, id Identity) bool { return names(r.Entries(), pv, id) }

// NamesDevice reports whether the record names this device, whatever is on it now.
func (r *Record) NamesDevice(id Identity) bool { return namesDevice(r.Entries(), id) }

// Trusts reports whether the node has no other storage driver, so that a device that cannot be read may be one of this driver.
func (r *Record) Trusts() bool {
	others, err := otherDrivers(r.KubeletDir, r.Driver)
	return err == nil && len(others) == 0
}

// Refused returns the last verdict about a candidate, if it is still valid.
func (r *Record) Refused(c Candidate) (v Verdict, since time.Time, valid bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.refused[key{c.PV, c.Identity}]
	return last.Verdict, last.since, known && last.listed == c.Listed && time.Now().Before(last.until)
}

// Admit decides about candidates, and records those that it accepts. unread are devices that cannot be read now: if the driver runs for
// the first time, the record awaits them.
func (r *Record) Admit(candidates []Candidate, unread []Entry) (verdicts []Verdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.surroundings()
	var news []Entry
	copied := map[string]bool{} // PVs
	for _, c := range candidates {
		v := Decide(c, s)
		verdicts = append(verdicts, v)
		if v.Reason != "" {
			news, copied[c.PV] = append(news, Entry{c.PV, c.Device, c.Identity, v.Reason}), c.Copied
			r.log().Info("accepted a physical volume", "device", c.Device, "pv", c.PV, "identity", c.Identity.String(), "reason", v.Reason)
		}
	}
	if s.First {
		news = append(news, unread...)
	}
	if s.First || len(news) > 0 {
		r.add(news, copied)
		r.first = false // even if the file cannot be written
	}
	for i, c := range candidates {
		r.remember(c, verdicts[i])
	}
	return verdicts
}

// surroundings reads the facts for a decision. What cannot be read counts against the candidates.
func (r *Record) surroundings() Surroundings {
	s := Surroundings{First: r.first, Records: r.all()}
	var err error
	if s.Others, err = otherDrivers(r.KubeletDir, r.Driver); err != nil {
		s.Others = []string{"unknown: " + err.Error()}
	}
	if s.Host, err = readHostFile(r.DevicesFile); err != nil {
		r.warn("cannot read the host's devices file", err)
	}
	return s
}

// remember keeps a refusal for a while, and forgets the old ones.
func (r *Record) remember(c Candidate, v Verdict) {
	now := time.Now()
	if r.refused == nil {
		r.refused = map[key]refusal{}
	}
	for k, old := range r.refused {
		if now.Sub(old.until) > time.Minute || len(r.refused) > maxEntries {
			delete(r.refused, k)
		}
	}
	k := key{c.PV, c.Identity}
	if v.Reason != "" {
		delete(r.refused, k)
		return
	}
	since := now
	if old, known := r.refused[k]; known {
		since = old.since
	} else if !v.Expected {
		r.log().Warn("ignored a physical volume that the node's record does not name", "device", c.Device, "pv", c.PV, "identity", c.Identity.String(), "reason", v.Refusal)
	}
	r.refused[k] = refusal{v, since, now.Add(refusalFor), c.Listed}
}

// add writes entries to the file, and keeps them in memory if that fails: what the driver has accepted stays so. Those of copied PVs are added
// beside the others.
func (r *Record) add(news []Entry, copied map[string]bool) {
	if !r.ReadOnly {
		err := r.change(func(entries []Entry) []Entry {
			for _, e := range news {
				if copied[e.PV] {
					entries = beside(entries, e)
				} else {
					entries = with(entries, e)
				}
			}
			return entries
		})
		if err == nil {
			return
		}
		r.warn("cannot write the record of accepted physical volumes; the driver retries when it accepts another one", err)
	}
	for _, e := range news {
		r.unsaved = bounded(beside(r.unsaved, e))
	}
}

// bounded drops the entries that were recorded first, if there are too many.
func bounded(entries []Entry) []Entry {
	return entries[max(0, len(entries)-maxEntries):]
}

// change replaces the file. The caller holds r.mu.
func (r *Record) change(edit func([]Entry) []Entry) error {
	return locked(r.File, func() error {
		r.refresh()
		entries := bounded(edit(r.all()))
		if !r.absent && slices.Equal(entries, r.entries) {
			return nil
		}
		if err := store(r.File, entries); err != nil {
			return err
		}
		r.unsaved = nil
		r.refresh()
		return nil
	})
}

// Accept records a physical volume that a person, or the driver itself, vouches for.
func (r *Record) Accept(e Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.change(func(entries []Entry) []Entry { return with(entries, e) }); err != nil {
		return fmt.Errorf("cannot write the record of accepted physical volumes: %w", err)
	}
	return nil
}

// Forget drops entries.
func (r *Record) Forget(is func(Entry) bool) (forgotten []Entry, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.change(func(entries []Entry) []Entry {
		return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool {
			if is(e) {
				forgotten = append(forgotten, e)
			}
			return is(e)
		})
	})
	return forgotten, err
}

// warn logs a warning once, until there is another one.
func (r *Record) warn(text string, err error) {
	if words := text + err.Error(); words != r.warned {
		r.warned = words
		r.log().Warn(text, "file", r.File, "error", err)
	}
}

func (r *Record) log() *slog.Logger { return cmp.Or(r.Log, slog.Default()) }
