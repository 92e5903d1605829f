package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/report"
)

// absence is why a node's complete report lacks a volume.
type absence struct {
	status    string // of the table of volumes
	what, fix string
	reported  bool // the check of invalid tags reports it
}

// Statuses of volumes that their node does not have.
const (
	statusLost    = "lost"
	statusRenamed = "renamed"
	statusNoTags  = "no valid tags"
)

// absenceOf says which part of the handle is absent: the group, the logical volume, or the driver's tags.
func absenceOf(pv *corev1.PersistentVolume, a *answer) absence {
	group, lv, _ := strings.Cut(pv.Spec.CSI.VolumeHandle, "/")
	g := find(a.page.Groups, func(g *report.Group) bool { return string(g.UUID) == group })
	if g == nil {
		name := cmp.Or(pv.Spec.CSI.VolumeAttributes[api.AttributeVolumeGroup], group)
		return absence{status: statusLost, what: fmt.Sprintf("its volume group %s is not on the disks of %s", name, a.node),
			fix: "bring the disks back; if they are lost, the data is in a backup, if there is one: see docs/howto/lost-nodes.md"}
	}
	renamed := find(a.page.Volumes, func(v *report.Volume) bool {
		return v.UUID != "" && v.UUID == pv.Spec.CSI.VolumeAttributes[api.AttributeUUID] && strings.HasPrefix(v.ID, group+"/")
	})
	switch where := string(g.Name) + "/" + lv; {
	case renamed != nil:
		return renamedTo(renamed, lv, a.node)
	case slices.ContainsFunc(a.page.Damaged, func(text string) bool { return slices.Contains(wordsOf(text), lv) }):
		return absence{status: statusNoTags, what: "the driver's tags of its logical volume " + where + " are invalid", fix: "kubectl nodelvm doctor", reported: true}
	case hasExtents(g, lv):
		return absence{status: statusNoTags, what: fmt.Sprintf("its logical volume %s is on %s, without valid tags of the driver", where, a.node),
			fix: fmt.Sprintf("restore its tags (lvchange --addtag): /var/lib/nodelvm/backup/%s on the node has those of the driver's last change", printable.ShellWord(string(g.Name)))}
	}
	return absence{status: statusLost, what: fmt.Sprintf("volume group %s is on %s, and has no logical volume %s of the driver: it was removed, or an older state of the group's metadata was restored", g.Name, a.node, lv),
		fix: "if metadata was restored, see docs/howto/replace-disk.md#lvms-metadata-from-a-backup; otherwise the data is in a backup, if there is one: see docs/howto/lost-nodes.md"}
}

// renamedOf returns the state and the remedy of a volume that its node reports and whose logical volume has another name than its
// handle; ok is false for all others. The driver refuses each request for it.
func renamedOf(pv *corev1.PersistentVolume, a *answer) (is absence, ok bool) {
	_, lv, _ := strings.Cut(pv.Spec.CSI.VolumeHandle, "/")
	v := a.volume(pv.Spec.CSI.VolumeHandle)
	if v == nil || v.LV == lv {
		return absence{}, false
	}
	return renamedTo(v, lv, a.node), true
}

func renamedTo(v *report.Volume, lv, node string) absence {
	return absence{status: statusRenamed, what: fmt.Sprintf("its logical volume %s/%s on %s was renamed to %s: the driver refuses all requests for it", v.Group, lv, node, v.LV),
		fix: fmt.Sprintf("on %s: lvrename %s %s %s", node, printable.ShellWord(string(v.Group)), printable.ShellWord(v.LV), printable.ShellWord(lv))}
}

// hasExtents reports whether a logical volume of that name has extents of the group. Thin volumes have none: their pool has them.
func hasExtents(g *report.Group, lv string) bool {
	return slices.ContainsFunc(g.PVs, func(pv report.PV) bool {
		return slices.ContainsFunc(pv.Allocated, func(r report.ExtentRange) bool { return cmp.Or(r.Owner, r.LV) == lv })
	})
}

// wordsOf returns the words of a sentence, and the parts of "group/volume".
func wordsOf(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" /:,;()\"", r) })
}
