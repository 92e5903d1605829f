package accepted

import (
	"fmt"
	"slices"
	"strings"
)

// Candidate is a device with an LVM label that the record does not name.
type Candidate struct {
	Device string // its path
	PV     string // the UUID in its label
	Identity
	Held    string // Why it is, or carries, a volume of a pod; "": it does not.
	Unknown string // Why the driver cannot determine that; "": it can.
	Remote  bool   // it comes over a storage network
	Listed  bool   // the metadata on an accepted PV lists its PV
	Copied  bool   // another device has its PV too: a disk and its copy
}

// Surroundings are the facts about the node that a decision needs.
type Surroundings struct {
	First   bool        // no driver has recorded anything on this node yet
	Others  []string    // the node's other storage drivers
	Host    []HostEntry // of the host's devices file
	Records []Entry
}

// Verdict is a decision about a candidate.
type Verdict struct {
	Reason   Reason // why it is accepted; "": it is not
	Refusal  string // a clause: why it is not accepted
	Expected bool   // no admin has to act: it is a volume of a pod.
}

// Decide decides whether a device carries a physical volume of this node's groups.
func Decide(c Candidate, s Surroundings) Verdict {
	if c.Held != "" {
		return Verdict{Refusal: c.Held, Expected: true}
	}
	if c.Unknown != "" {
		return Verdict{Refusal: c.Unknown}
	}
	owner, recorded := ownerOf(c.PV, s.Records)
	switch {
	case s.First || isAwaited(c, s.Records):
		return Verdict{Reason: FirstUse}
	case slices.ContainsFunc(s.Host, func(h HostEntry) bool { return h.names(c.PV, c.Identity) }):
		return Verdict{Reason: HostFile}
	case len(s.Others) == 0 && !c.Remote:
		return Verdict{Reason: NoOtherDriver}
	case recorded:
		return Verdict{Refusal: fmt.Sprintf("the node's record has its physical volume on another device, last %s (%s)", owner.Device, owner.Identity)}
	case c.Listed:
		return Verdict{Reason: Listed}
	case c.Remote:
		return Verdict{Refusal: "it comes over a storage network, where others may write it"}
	}
	return Verdict{Refusal: "it may be a volume of another storage driver on this node (" + list(s.Others) + ")"}
}

// ownerOf returns the entry of a physical volume.
func ownerOf(pv string, records []Entry) (Entry, bool) {
	i := slices.IndexFunc(records, func(e Entry) bool { return e.PV == pv })
	if i < 0 {
		return Entry{}, false
	}
	return records[i], true
}

// isAwaited reports whether the device was there, but could not be read, when the driver first ran.
func isAwaited(c Candidate, records []Entry) bool {
	return slices.ContainsFunc(records, func(e Entry) bool { return e.PV == "" && e.Same(c.Identity) })
}

// names reports whether a record names this PV on this device.
func names(records []Entry, pv string, id Identity) bool {
	return slices.ContainsFunc(records, func(e Entry) bool { return e.PV == pv && e.Same(id) })
}

// namesDevice reports whether a record names this device, with any PV.
func namesDevice(records []Entry, id Identity) bool {
	return slices.ContainsFunc(records, func(e Entry) bool { return e.Same(id) })
}

// with returns the records with an entry, which replaces that of the same PV on any device, and the one that awaits its device.
func with(records []Entry, e Entry) []Entry {
	return beside(slices.DeleteFunc(slices.Clone(records), func(r Entry) bool { return r.PV == e.PV && e.PV != "" }), e)
}

// beside returns the records with an entry, and keeps those of the same PV on other devices: of a disk and its copy both count, so that the reading
// finds them and the driver changes nothing in their group.
func beside(records []Entry, e Entry) []Entry {
	left := slices.DeleteFunc(slices.Clone(records), func(r Entry) bool { return (r.PV == e.PV || r.PV == "") && r.Same(e.Identity) })
	return append(left, e)
}

// list names at most three of the texts.
func list(texts []string) string {
	const most = 3
	text := strings.Join(texts[:min(len(texts), most)], ", ")
	if len(texts) > most {
		text += fmt.Sprintf(" and %d more", len(texts)-most)
	}
	return text
}
