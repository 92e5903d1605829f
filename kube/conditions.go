package kube

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// This file decides what is told of the conditions of volumes and groups; health.go tells it. A condition that is not found
// any more is over only if what it was about is there, can be seen, and nothing of its kind is left.

// condition names a finding as long as it lasts; its text may change meanwhile.
type condition struct {
	what   lvm.Trouble
	group  string
	volume string // UUID of the LV; "" for a whole group
	pool   string // the thin pool; "": none
}

func conditionOf(f lvm.Finding) condition {
	return condition{f.Trouble, f.Group, f.Volume.UUID, f.Pool}
}

func (c condition) compare(d condition) int {
	return cmp.Or(strings.Compare(c.group, d.group), strings.Compare(c.volume, d.volume), strings.Compare(c.pool, d.pool), cmp.Compare(c.what, d.what))
}

// severities orders the conditions of one kind, the least first. What has none of these is a kind of its own.
var severities = [][]lvm.Trouble{
	{lvm.TroubleRebuilding, lvm.TroubleDegraded, lvm.TroubleDataMissing},
	{lvm.TroublePoolNear, lvm.TroublePoolFull, lvm.TroublePoolFailed},
	{lvm.TroubleUnusable, lvm.TroubleSilent},
}

// severity compares two conditions: same tells whether they are of one kind and about one thing, which is the thin pool where
// there is one.
func severity(a, b lvm.Finding) (order int, same bool) {
	about := a.Volume.UUID == b.Volume.UUID
	if a.Pool != "" || b.Pool != "" {
		about = a.Pool == b.Pool
	}
	for _, kind := range severities {
		i, j := slices.Index(kind, a.Trouble), slices.Index(kind, b.Trouble)
		if i >= 0 && j >= 0 && a.Group == b.Group && about {
			return cmp.Compare(i, j), true
		}
	}
	return 0, false
}

// change is what has become of a condition.
type change struct {
	what changeKind
	was  lvm.Finding // zero: it is new
	now  lvm.Finding // what is found in its place, where it has become worse or better
}

type changeKind int

const (
	conditionNew       changeKind = iota // it was not found before, or had another cause
	conditionWorsened                    // another one of its kind, a worse one, is found in its place
	conditionImproved                    // a lesser one is
	conditionResolved                    // what it was about is there, and well
	conditionDestroyed                   // its volume is not in its group any more, although a claim is bound to it
	conditionDropped                     // its volume was deleted, or nothing of this cluster is in its group or pool any more: nothing is told
	conditionUnknown                     // what it was about cannot be seen: nothing is told, and it is not forgotten
)

// changes compares the conditions that were told with those that are found now. seen is what could be seen of their volumes
// and groups, before and after these were looked for; bound tells whether a claim is bound to a volume.
func changes(known map[condition]lvm.Finding, found []lvm.Finding, seen []lvm.HealthScope, bound func(lvm.Volume) bool) []change {
	now := map[condition]bool{}
	var list []change
	for _, f := range found {
		key := conditionOf(f)
		if was, told := known[key]; (!told || was.Cause != f.Cause) && !now[key] {
			list = append(list, change{what: conditionNew, now: f})
		}
		now[key] = true
	}
	for key, was := range known {
		if !now[key] {
			list = append(list, changeOf(was, found, seen, bound))
		}
	}
	slices.SortFunc(list, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.what, b.what), a.key().compare(b.key()))
	})
	destroyed := map[string]bool{}
	for i, c := range list {
		if c.what == conditionDestroyed && destroyed[c.was.Volume.UUID] {
			list[i].what = conditionDropped // that is told once of a volume
		}
		destroyed[c.was.Volume.UUID] = destroyed[c.was.Volume.UUID] || c.what == conditionDestroyed
	}
	return list
}

// key names the condition that has changed.
func (c change) key() condition {
	if c.what == conditionNew {
		return conditionOf(c.now)
	}
	return conditionOf(c.was)
}

// changeOf tells what has become of a condition that is not found any more.
func changeOf(was lvm.Finding, found []lvm.Finding, seen []lvm.HealthScope, bound func(lvm.Volume) bool) change {
	c := change{what: conditionImproved, was: was}
	left := false
	for _, f := range found {
		order, same := severity(f, was)
		if same && (!left || severer(f, c.now)) {
			left, c.now = true, f
			if order > 0 {
				c.what = conditionWorsened
			}
		}
	}
	if left {
		return c
	}
	c.what = conditionResolved
	for _, o := range seen {
		if what := outcome(was, o, bound); what != conditionResolved {
			c.what = what
		}
	}
	return c
}

func severer(a, b lvm.Finding) bool {
	order, _ := severity(a, b)
	return order > 0
}

// outcome is what a condition that is not found any more has come to, by what can be seen.
func outcome(was lvm.Finding, seen lvm.HealthScope, bound func(lvm.Volume) bool) changeKind {
	vg := cmp.Or(was.VG, was.Volume.ID.VG)
	watched, groupIsHere := seen.Groups[vg]
	switch {
	case vg == "":
		return conditionResolved // it is about no group, or one that is not there yet
	case !groupIsHere:
		return conditionUnknown
	case was.Volume.UUID != "":
		return volumeOutcome(was, seen, bound)
	case !watched:
		return conditionDropped
	case was.Pool != "":
		return poolOutcome(was, seen)
	}
	return conditionResolved
}

func volumeOutcome(was lvm.Finding, seen lvm.HealthScope, bound func(lvm.Volume) bool) changeKind {
	v, here := seen.Volumes[was.Volume.UUID]
	switch {
	case !here && bound(was.Volume):
		return conditionDestroyed
	case !here:
		return conditionDropped
	case !v.Active && isOfFileSystem(was.Trouble):
		return conditionUnknown // it is not mounted
	case was.Pool != "":
		return poolOutcome(was, seen)
	case !v.Active && v.NeedsKernel && was.Trouble != lvm.TroubleSuspended:
		return conditionUnknown
	}
	return conditionResolved
}

// isOfFileSystem tells whether a condition is one of a file system, which is found only while that is mounted.
func isOfFileSystem(t lvm.Trouble) bool {
	others := []lvm.Trouble{lvm.TroubleSuspended, lvm.TroubleMissing, lvm.TroubleUnprepared}
	return !slices.Contains(others, t) && !slices.ContainsFunc(severities, func(kind []lvm.Trouble) bool { return slices.Contains(kind, t) })
}

func poolOutcome(was lvm.Finding, seen lvm.HealthScope) changeKind {
	switch active, used := seen.Pools[cmp.Or(was.VG, was.Volume.ID.VG)+"/"+was.Pool]; {
	case !used:
		return conditionDropped
	case !active:
		return conditionUnknown
	}
	return conditionResolved
}
