package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

const conditionFix = "follow the message; see docs/howto/runbooks.md"

// checkConditions reports the conditions that the drivers found, with the texts of their events. Each cause gets one finding: a
// missing disk with all volumes that it affects, a thin pool with all of its volumes. checkGroups reports an unusable group.
func checkConditions(_ *facts, a *answer, found func(where, what, fix string)) {
	names, pools := volumeNames(a.page), map[string]bool{}
	for _, x := range a.page.Conditions {
		kind, pool := lvm.ConditionType(x.Type), x.Type+" "+string(x.Group)+"/"+x.Pool
		switch {
		case kind == lvm.ConditionVolumeGroupUnusable, kind == lvm.ConditionDiskUnresponsive: // checkGroups
		case kind == lvm.ConditionPhysicalVolumeNotAccepted: // checkDisks
		case isOfMissingDisk(a.page, x): // in the finding of the group
		case kind == lvm.ConditionPhysicalVolumeMissing:
			found(a.node+", volume group "+string(x.Group), x.Text+missingDisks(a.page, x.Group)+affected(a.page, x.Group, names), "reconnect the disk; if it is lost, see docs/howto/replace-disk.md")
		case x.Pool != "" && pools[pool]:
		case x.Pool != "":
			pools[pool] = true
			found(a.node+", thin pool "+string(x.Group)+"/"+x.Pool, x.Type+": "+x.Text, conditionFix)
		case x.Volume == "" && x.Group == "":
			found(a.node, x.Text, conditionFix)
		case x.Volume == "":
			found(a.node+", volume group "+string(x.Group), x.Text, conditionFix)
		default:
			found(a.node+", volume "+names[x.Volume], x.Type+": "+x.Text, conditionFix)
		}
	}
}

// checkTags reports logical volumes with the driver's tags that it cannot read.
func checkTags(_ *facts, a *answer, found func(where, what, fix string)) {
	for _, text := range a.page.Damaged {
		found(a.node, "ignoring a volume with invalid tags: "+text, "correct its tags (lvchange --deltag, --addtag), or remove it if it is not needed")
	}
}

// volumeNames returns group/LV and the claim of each volume, by handle; of a volume that only a condition names, its claim.
func volumeNames(page report.Node) map[string]string {
	names := map[string]string{}
	for _, x := range page.Conditions {
		if x.Claim != "" {
			names[x.Volume] = "claim " + x.Claim
		}
	}
	for _, v := range page.Volumes {
		names[v.ID] = string(v.Group) + "/" + v.LV
		if v.Claim != "" {
			names[v.ID] += " (claim " + v.Claim + ")"
		}
	}
	return names
}

// hasCondition reports whether a group, none of its volumes, has a condition.
func hasCondition(page report.Node, kind lvm.ConditionType, group lvm.VGName) bool {
	return slices.ContainsFunc(page.Conditions, func(x report.Condition) bool {
		return x.Type == string(kind) && x.Group == group && x.Volume == ""
	})
}

// isOfMissingDisk reports whether a volume has the condition because a disk of its group is missing.
func isOfMissingDisk(page report.Node, x report.Condition) bool {
	kind := lvm.ConditionType(x.Type)
	return x.Volume != "" && (kind == lvm.ConditionVolumeDataMissing || kind == lvm.ConditionVolumeDegraded) &&
		hasCondition(page, lvm.ConditionPhysicalVolumeMissing, x.Group)
}

// missingDisks describes the missing disks of a group; "" if the driver never saw them.
func missingDisks(page report.Node, group lvm.VGName) string {
	var list []string
	for _, g := range page.Groups {
		for _, pv := range g.PVs {
			if g.Name == group && pv.Missing && pv.Disk != nil {
				list = append(list, pv.Disk.String())
			}
		}
	}
	if len(list) == 0 {
		return ""
	}
	return ". Missing: " + strings.Join(list, "; ")
}

// affectedShown limits how many volumes of a missing disk doctor names; kubectl nodelvm volumes lists them all.
const affectedShown = 20

// affected lists the volumes that a missing disk of a group affects.
func affected(page report.Node, group lvm.VGName, names map[string]string) string {
	var list []string
	for _, x := range page.Conditions {
		if x.Group == group && isOfMissingDisk(page, x) {
			list = append(list, x.Type+": "+names[x.Volume])
		}
	}
	if len(list) == 0 {
		return ""
	}
	more := ""
	if rest := len(list) - affectedShown; rest > 0 {
		more = fmt.Sprintf("; and %d more volumes", rest)
	}
	return ". Affected volumes: " + strings.Join(list[:min(len(list), affectedShown)], "; ") + more
}
