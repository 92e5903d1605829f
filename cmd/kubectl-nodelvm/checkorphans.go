package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// checkOrphans reports what this cluster has left on the disks of nodes, one finding for each node: it only uses space, or is
// data that an admin wants to adopt. The volumes of other clusters are not this one's matter.
func checkOrphans(f *facts, found func(where, what, fix string)) {
	for _, a := range f.answering() {
		if a.page.Comparison == nil {
			continue
		}
		count, size := map[report.Reason]int{}, lvm.Bytes(0)
		for _, u := range a.page.Comparison.Unreferenced {
			if f.isLeft(&a, u) {
				count[u.Reason]++
				size += u.Size
			}
		}
		var counts []string
		for _, reason := range report.Reasons {
			if count[reason] > 0 {
				counts = append(counts, fmt.Sprintf("%d %s", count[reason], reason))
			}
		}
		if len(counts) > 0 {
			found(a.node, fmt.Sprintf("volumes or snapshots of this cluster are on its disks, and no claim uses them: %s, %s in total", strings.Join(counts, ", "), size),
				"kubectl nodelvm orphans lists them; adopt those that you need, and remove the others: docs/howto/lost-nodes.md#when-the-node-comes-back")
		}
	}
}

// isLeft reports whether an orphan of the driver's last comparison, which may be an hour old, is one of this cluster and still there: neither
// removed nor adopted since.
func (f *facts) isLeft(a *answer, u report.Unreferenced) bool {
	if u.Reason == report.ReasonOtherCluster {
		return false
	}
	if u.Snapshot {
		return slices.ContainsFunc(a.page.Snapshots, func(sn report.Snapshot) bool { return sn.ID == u.Handle }) &&
			!slices.ContainsFunc(f.contents, func(c content) bool { return c.handle() == u.Handle })
	}
	v := a.volume(u.Handle)
	return v != nil && v.State != string(lvm.StateDeleting) && !slices.ContainsFunc(f.volumes, func(pv corev1.PersistentVolume) bool {
		return pv.Spec.CSI.VolumeHandle == u.Handle && pv.Status.Phase != corev1.VolumeReleased && pv.Status.Phase != corev1.VolumeFailed
	})
}
