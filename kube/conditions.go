package kube

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// This file decides which changes of conditions to report; health.go reports them. A condition that Health no longer finds
// is resolved only if its volume or group is present and visible and has no other condition of the same kind.

// condition identifies a condition while it lasts; its text may change.
type condition struct {
	what   lvm.ConditionType
	group  lvm.VGName
	volume string // UUID of the LV; "" for a whole group
	pool   string // the thin pool; "": none
}

func conditionOf(f lvm.Condition) condition {
	return condition{f.Type, f.Group, f.Volume.UUID, f.Pool}
}

func (c condition) compare(d condition) int {
	return cmp.Or(cmp.Compare(c.group, d.group), strings.Compare(c.volume, d.volume), strings.Compare(c.pool, d.pool), cmp.Compare(c.what, d.what))
}

// severities lists conditions of one kind, the least severe first. A condition in none of these lists is the only one of
// its kind.
var severities = [][]lvm.ConditionType{
	{lvm.ConditionVolumeRebuilding, lvm.ConditionVolumeDegraded, lvm.ConditionVolumeOnRemovedDisk, lvm.ConditionVolumeDataMissing},
	{lvm.ConditionThinPoolNearlyFull, lvm.ConditionThinPoolFull, lvm.ConditionThinPoolFailed},
	{lvm.ConditionVolumeGroupUnusable, lvm.ConditionDiskUnresponsive},
	{lvm.ConditionFileSystemNearlyFull, lvm.ConditionFileSystemFull},
}

// severity compares two conditions. same reports whether they are of one kind and about one object, which is the thin pool
// where there is one.
func severity(a, b lvm.Condition) (order int, same bool) {
	about := a.Volume.UUID == b.Volume.UUID
	if a.Pool != "" || b.Pool != "" {
		about = a.Pool == b.Pool
	}
	for _, kind := range severities {
		i, j := slices.Index(kind, a.Type), slices.Index(kind, b.Type)
		if i >= 0 && j >= 0 && a.Group == b.Group && about {
			return cmp.Compare(i, j), true
		}
	}
	return 0, false
}

// change is a change of a condition.
type change struct {
	what changeKind
	was  lvm.Condition // zero: the condition is new
	now  lvm.Condition // the condition that replaces it, if it has become worse or better
}

type changeKind int

const (
	conditionNew       changeKind = iota // New, or with another cause.
	conditionWorsened                    // A more severe condition of its kind replaces it.
	conditionImproved                    // A less severe one replaces it.
	conditionResolved                    // Its volume or group is present and healthy.
	conditionDestroyed                   // Its volume is no longer in its group, although a claim is bound to it.
	conditionDropped                     // Its volume was deleted, or its group or pool has no volume of this cluster: not reported.
	conditionUnknown                     // Its volume or group is not visible: not reported, and kept.
)

// changes compares the reported conditions with those found now. seen holds what Health could observe before and after it
// searched; bound reports whether a claim is bound to a volume that is not on the disks any more.
func changes(known map[condition]lvm.Condition, found []lvm.Condition, seen []lvm.HealthScope, bound func(lvm.Volume) bool) []change {
	now := map[condition]bool{}
	var list []change
	for _, f := range found {
		key := conditionOf(f)
		if was, found := known[key]; (!found || f.MustRepeat(was)) && !now[key] {
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
			list[i].what = conditionDropped // reported once for each volume
		}
		destroyed[c.was.Volume.UUID] = destroyed[c.was.Volume.UUID] || c.what == conditionDestroyed
	}
	return list
}

// key identifies the condition that has changed.
func (c change) key() condition {
	if c.what == conditionNew {
		return conditionOf(c.now)
	}
	return conditionOf(c.was)
}

// changeOf decides what became of a condition that Health no longer finds.
func changeOf(was lvm.Condition, found []lvm.Condition, seen []lvm.HealthScope, bound func(lvm.Volume) bool) change {
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

func severer(a, b lvm.Condition) bool {
	order, _ := severity(a, b)
	return order > 0
}

// outcome derives from the visible volumes and groups what became of a condition that Health no longer finds.
func outcome(was lvm.Condition, seen lvm.HealthScope, bound func(lvm.Volume) bool) changeKind {
	vg := cmp.Or(was.VG, was.Volume.ID.VG)
	watched, groupIsHere := seen.Groups[vg]
	switch {
	case vg == "":
		return conditionResolved // it concerns no group, or one that does not exist yet
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

func volumeOutcome(was lvm.Condition, seen lvm.HealthScope, bound func(lvm.Volume) bool) changeKind {
	v, here := seen.Volumes[was.Volume.UUID]
	switch {
	case !here && bound(was.Volume):
		return conditionDestroyed
	case !here:
		return conditionDropped
	case !v.Active && slices.Contains(nodeConditions, was.Type):
		return conditionUnknown // the volume is not in use
	case was.Pool != "":
		return poolOutcome(was, seen)
	case !v.Active && v.NeedsKernel && was.Type != lvm.ConditionVolumeSuspended:
		return conditionUnknown
	}
	return conditionResolved
}

// nodeConditions are the conditions that package node finds: only while the volume is active.
var nodeConditions = []lvm.ConditionType{lvm.ConditionFileSystemReadOnly, lvm.ConditionSignatureFound, lvm.ConditionEncryptionHeaderDamaged,
	lvm.ConditionFileSystemNearlyFull, lvm.ConditionFileSystemFull, lvm.ConditionFileSystemInodesNearlyUsed, lvm.ConditionIOLimitsNotSet}

func poolOutcome(was lvm.Condition, seen lvm.HealthScope) changeKind {
	switch active, used := seen.Pools[string(cmp.Or(was.VG, was.Volume.ID.VG))+"/"+was.Pool]; {
	case !used:
		return conditionDropped
	case !active:
		return conditionUnknown
	}
	return conditionResolved
}
