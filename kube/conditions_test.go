package kube

import (
	"testing"

	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// words describes a change: its kind, its condition, and the condition that replaces it.
func (c change) words() string {
	kinds := map[changeKind]string{conditionNew: "new", conditionWorsened: "worsened", conditionImproved: "improved", conditionResolved: "resolved",
		conditionDestroyed: "destroyed", conditionDropped: "dropped", conditionUnknown: "unknown"}
	words := kinds[c.what]
	if c.what != conditionNew {
		words += " " + string(c.was.Type)
	}
	if c.now.Type != "" {
		words += " " + string(c.now.Type)
	}
	return words
}

// TestConditionOutcome: a condition is resolved only if its volume or group is present and visible and has no other
// condition of its kind.
func TestConditionOutcome(t *testing.T) {
	ofVolume := func(what lvm.ConditionType, pool string) lvm.Condition {
		return lvm.Condition{Type: what, Group: "vg", VG: kubetest.TestVG, Pool: pool, Volume: lvm.Volume{UUID: "u1", Name: "pvc-1", ID: lvm.ID{VG: kubetest.TestVG, LV: "pvc-1"}}}
	}
	ofGroup := func(what lvm.ConditionType, pool string) lvm.Condition {
		return lvm.Condition{Type: what, Group: "vg", VG: kubetest.TestVG, Pool: pool}
	}
	missing, degraded, rebuilding := ofVolume(lvm.ConditionVolumeDataMissing, ""), ofVolume(lvm.ConditionVolumeDegraded, ""), ofVolume(lvm.ConditionVolumeRebuilding, "")
	near, full, failed := ofGroup(lvm.ConditionThinPoolNearlyFull, "pool"), ofVolume(lvm.ConditionThinPoolFull, "pool"), ofVolume(lvm.ConditionThinPoolFailed, "pool")
	otherFull := ofVolume(lvm.ConditionThinPoolFull, "other")
	groupMissing, silent, unusable := ofGroup(lvm.ConditionPhysicalVolumeMissing, ""), ofGroup(lvm.ConditionDiskUnresponsive, ""), ofGroup(lvm.ConditionVolumeGroupUnusable, "")
	readOnly := ofVolume("FileSystemReadOnly", "")
	readOnly.VG = "" // as package node reports it
	asLVM, asBtrfs := ofVolume("SignatureFound", ""), ofVolume("SignatureFound", "")
	asLVM.Cause, asBtrfs.Cause = "an LVM physical volume", "a btrfs file system"
	unprepared := lvm.Condition{Type: lvm.ConditionVolumeGroupSetupFailed, Group: "vg"}
	see := func(v lvm.VolumeScope, poolIsActive bool) lvm.HealthScope {
		return lvm.HealthScope{Groups: map[lvm.VGUUID]bool{kubetest.TestVG: true}, Volumes: map[string]lvm.VolumeScope{"u1": v}, Pools: map[string]bool{kubetest.TestVG + "/pool": poolIsActive}}
	}
	well := see(lvm.VolumeScope{Active: true}, true)
	inactive, raid, raidInactive := see(lvm.VolumeScope{}, false), see(lvm.VolumeScope{Active: true, NeedsKernel: true}, true), see(lvm.VolumeScope{NeedsKernel: true}, true)
	noVolume := lvm.HealthScope{Groups: map[lvm.VGUUID]bool{kubetest.TestVG: true}}
	emptied := lvm.HealthScope{Groups: map[lvm.VGUUID]bool{kubetest.TestVG: false}}
	nothing := lvm.HealthScope{}
	one := func(f ...lvm.Condition) []lvm.Condition { return f }
	for name, test := range map[string]struct {
		known, found []lvm.Condition
		seen         []lvm.HealthScope
		bound        bool
		want         string
	}{
		"it begins":                                    {nil, one(near), nil, false, "new ThinPoolNearlyFull"},
		"it lasts":                                     {one(near), one(near), twice(well), false, ""},
		"found twice":                                  {nil, one(groupMissing, groupMissing), nil, false, "new PhysicalVolumeMissing"},
		"resolved":                                     {one(near), nil, twice(well), false, "resolved ThinPoolNearlyFull"},
		"a pool becomes full":                          {one(near), one(full), twice(well), false, "new ThinPoolFull; worsened ThinPoolNearlyFull ThinPoolFull"},
		"a pool becomes full and fails":                {one(near), one(full, failed), twice(well), false, "new ThinPoolFailed; new ThinPoolFull; worsened ThinPoolNearlyFull ThinPoolFailed"},
		"another pool becomes full":                    {one(near), one(otherFull), twice(well), false, "new ThinPoolFull; resolved ThinPoolNearlyFull"},
		"a full pool has a little room":                {one(full), one(near), twice(well), false, "new ThinPoolNearlyFull; improved ThinPoolFull ThinPoolNearlyFull"},
		"a full pool is enlarged":                      {one(full), nil, twice(well), false, "resolved ThinPoolFull"},
		"a pool is not active any more":                {one(near, full), nil, twice(inactive), false, "unknown ThinPoolNearlyFull; unknown ThinPoolFull"},
		"a pool was active only before":                {one(full), nil, []lvm.HealthScope{well, inactive}, false, "unknown ThinPoolFull"},
		"a pool is active only after":                  {one(full), nil, []lvm.HealthScope{inactive, well}, false, "unknown ThinPoolFull"},
		"no volume is in the pool any more":            {one(near), nil, twice(noVolume), false, "dropped ThinPoolNearlyFull"},
		"a leg is filled":                              {one(degraded), one(rebuilding), twice(raid), false, "new VolumeRebuilding; improved VolumeDegraded VolumeRebuilding"},
		"a leg was filled":                             {one(rebuilding), nil, twice(raid), false, "resolved VolumeRebuilding"},
		"another leg is lost":                          {one(degraded), one(missing), twice(raid), false, "new VolumeDataMissing; worsened VolumeDegraded VolumeDataMissing"},
		"a RAID cannot be seen":                        {one(degraded), nil, twice(raidInactive), false, "unknown VolumeDegraded"},
		"a disk is back":                               {one(groupMissing, missing), nil, twice(well), false, "resolved PhysicalVolumeMissing; resolved VolumeDataMissing"},
		"a disk is back, its volume is not in use":     {one(missing), nil, twice(inactive), false, "resolved VolumeDataMissing"},
		"the volume was destroyed with its disk":       {one(missing), nil, twice(noVolume), true, "destroyed VolumeDataMissing"},
		"the volume was deleted":                       {one(missing), nil, twice(noVolume), false, "dropped VolumeDataMissing"},
		"the whole group goes":                         {one(groupMissing, missing), nil, twice(nothing), true, "unknown PhysicalVolumeMissing; unknown VolumeDataMissing"},
		"no volume is in the group any more":           {one(groupMissing), nil, twice(emptied), false, "dropped PhysicalVolumeMissing"},
		"a group does not answer any more":             {one(unusable), one(silent), twice(well), false, "new DiskUnresponsive; worsened VolumeGroupUnusable DiskUnresponsive"},
		"a group answers again":                        {one(silent), one(unusable), twice(well), false, "new VolumeGroupUnusable; improved DiskUnresponsive VolumeGroupUnusable"},
		"a file system is mounted again, well":         {one(readOnly), nil, twice(well), false, "resolved FileSystemReadOnly"},
		"a file system is not mounted any more":        {one(readOnly), nil, twice(inactive), false, "unknown FileSystemReadOnly"},
		"a signature stays":                            {one(asLVM), one(asLVM), twice(well), false, ""},
		"another signature is written over it":         {one(asLVM), one(asBtrfs), twice(well), false, "new SignatureFound"},
		"its device is resumed, or not active":         {one(ofVolume(lvm.ConditionVolumeSuspended, "")), nil, twice(raidInactive), false, "resolved VolumeSuspended"},
		"a group is as it is declared":                 {one(unprepared), nil, twice(nothing), false, "resolved VolumeGroupSetupFailed"},
		"a volume is degraded in a group without disk": {one(degraded), one(groupMissing), twice(raid), false, "new PhysicalVolumeMissing; resolved VolumeDegraded"},
	} {
		known := map[condition]lvm.Condition{}
		for _, f := range test.known {
			known[conditionOf(f)] = f
		}
		got := ""
		for _, c := range changes(known, test.found, test.seen, func(lvm.Volume) bool { return test.bound }) {
			if got != "" {
				got += "; "
			}
			got += c.words()
		}
		if got != test.want {
			t.Errorf("%s: %s\nwant: %s", name, got, test.want)
		}
	}
}

func twice(o lvm.HealthScope) []lvm.HealthScope { return []lvm.HealthScope{o, o} }
