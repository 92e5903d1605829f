package main

import (
	"context"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

const goneGroup = lvm.VGUUID("GONEGR-0000-0000-0000-0000-0000-000001")

// TestLostGroup: a group that is not on the node has a condition, and so has each of its claimed volumes, whether its disk returns
// errors or is gone; when the group is back, none has.
func TestLostGroup(t *testing.T) {
	volume := func(vg lvm.VGUUID, name string) lvm.Volume {
		return lvm.Volume{ID: lvm.ID{VG: vg, LV: name}, UUID: "uuid-" + name, Name: name, Claim: "shop/" + name, Group: "vg-then"}
	}
	claimed := []lvm.Volume{volume(goneGroup, "pvc-1"), volume("here", "pvc-2"), volume(goneGroup, "pvc-3")}
	record := map[lvm.VGUUID][]report.LostDisk{goneGroup: {{PV: "PV-UUID-1", Group: "vg-data", GroupUUID: goneGroup}}}
	held := lvm.ManagedVolumes{Groups: map[lvm.VGUUID]bool{"here": true}}
	lost := &lostGroups{
		holdings: func(context.Context) (lvm.ManagedVolumes, error) { return held, nil },
		disks:    func(vg lvm.VGUUID) []report.LostDisk { return record[vg] },
		claimed:  func() []lvm.Volume { return claimed },
	}
	find := func() (texts string) {
		t.Helper()
		found, err := lost.Health(t.Context())
		must(t, err)
		for _, f := range found {
			if f.VG != goneGroup {
				t.Errorf("a condition of group %s: %+v", f.VG, f)
			}
			texts += string(f.Type) + " " + string(f.Group) + " " + f.Volume.Name + ": " + f.Text + "\n"
		}
		return texts
	}
	const cause = "failed or were taken out, or an admin removed the group. Reconnect the disks"
	want := func(name, on, unread string) string {
		return "PhysicalVolumeMissing " + name + " : volume group " + name + " is not on this node, and 2 bound claims have their volumes in it: its disks" + on + " " + cause + "; if they are lost, restore the volumes from a backup" + unread + "\n" +
			"VolumeDataMissing " + name + " pvc-1: its volume group " + name + " is not on its node: the group's disks" + on + " " + cause + ", or restore the volume from a backup\n" +
			"VolumeDataMissing " + name + " pvc-3: its volume group " + name + " is not on its node: the group's disks" + on + " " + cause + ", or restore the volume from a backup\n"
	}
	if got := find(); got != want("vg-data", " (PV-UUID-1)", "") {
		t.Errorf("its disk is gone:\n%s", got)
	}
	held.Unread = []string{"/dev/sdb could not be read: input/output error"}
	if got := find(); got != want("vg-data", " (PV-UUID-1)", ". The driver cannot read: "+held.Unread[0]) {
		t.Errorf("its disk returns errors:\n%s", got)
	}
	clear(record)
	held.Unread = nil
	if got := find(); got != want("vg-then", "", "") {
		t.Errorf("nothing recorded its disk:\n%s", got)
	}
	held.Groups[goneGroup] = true
	if got := find(); got != "" {
		t.Errorf("the group is back:\n%s", got)
	}
	lost.claimed = nil
	held.Groups = nil
	if got := find(); got != "" {
		t.Errorf("without an API server:\n%s", got)
	}
}

// TestLostGroupWithoutName: a group whose name neither the record nor a PersistentVolume has is named by its UUID.
func TestLostGroupWithoutName(t *testing.T) {
	found := conditionsOfLost(goneGroup, []lvm.Volume{{ID: lvm.ID{VG: goneGroup, LV: "pvc-1"}, UUID: "u"}}, nil, nil)
	if len(found) != 2 || found[0].Group != lvm.VGName(goneGroup) || !strings.Contains(found[0].Text, string(goneGroup)) {
		t.Errorf("a group without a known name: %+v", found)
	}
}
