package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// lostGroups finds the volume groups that are not on this node although bound claims have volumes in them. Neither LVM nor the kernel
// shows such a group: the PersistentVolumes name it, and the record of the node's disks says what it was on.
type lostGroups struct {
	holdings func(context.Context) (lvm.ManagedVolumes, error)
	disks    func(lvm.VGUUID) []report.LostDisk
	claimed  func() []lvm.Volume // volumes of bound claims that may be missing; nil: no API server
}

// Health returns a condition for each lost group, and one for each of its volumes.
func (l *lostGroups) Health(ctx context.Context) ([]lvm.Condition, error) {
	if l.claimed == nil {
		return nil, nil
	}
	claimed := l.claimed() // before the disks: a volume that is created meanwhile is there
	if len(claimed) == 0 {
		return nil, nil
	}
	held, err := l.holdings(ctx)
	if err != nil {
		return nil, err
	}
	return lostConditions(claimed, held, l.disks), nil
}

func lostConditions(claimed []lvm.Volume, held lvm.ManagedVolumes, disksOf func(lvm.VGUUID) []report.LostDisk) []lvm.Condition {
	lost := map[lvm.VGUUID][]lvm.Volume{}
	var order []lvm.VGUUID
	for _, v := range claimed {
		if held.Groups[v.ID.VG] {
			continue
		}
		if lost[v.ID.VG] == nil {
			order = append(order, v.ID.VG)
		}
		lost[v.ID.VG] = append(lost[v.ID.VG], v)
	}
	slices.Sort(order)
	var found []lvm.Condition
	for _, vg := range order {
		found = append(found, conditionsOfLost(vg, lost[vg], disksOf(vg), held.Unread)...)
	}
	return found
}

// conditionsOfLost describes one lost group. The record has its last name; a PersistentVolume, the one at the volume's creation.
func conditionsOfLost(vg lvm.VGUUID, volumes []lvm.Volume, disks []report.LostDisk, unread []string) []lvm.Condition {
	name, on := volumes[0].Group, ""
	var pvs []string
	for _, d := range disks {
		name, pvs = d.Group, append(pvs, d.PV)
	}
	if len(pvs) > 0 {
		on = " (" + strings.Join(pvs, ", ") + ")"
	}
	name = cmp.Or(name, lvm.VGName(vg))
	found := []lvm.Condition{{Type: lvm.ConditionPhysicalVolumeMissing, Group: name, VG: vg, Text: fmt.Sprintf(
		"volume group %s is not on this node, and %d bound claims have their volumes in it: its disks%s failed or were taken out, or an admin removed the group. Reconnect the disks; if they are lost, restore the volumes from a backup%s",
		name, len(volumes), on, unreadable(unread))}}
	for _, v := range volumes {
		v.Group = name
		found = append(found, lvm.Condition{Type: lvm.ConditionVolumeDataMissing, Group: name, VG: vg, Volume: v, Text: fmt.Sprintf(
			"its volume group %s is not on its node: the group's disks%s failed or were taken out, or an admin removed the group. Reconnect the disks, or restore the volume from a backup", name, on)})
	}
	return found
}

// unreadable says which devices cannot be read: the lost group may be on one of them.
func unreadable(devices []string) string {
	if len(devices) == 0 {
		return ""
	}
	return ". The driver cannot read: " + strings.Join(devices, "; ")
}
