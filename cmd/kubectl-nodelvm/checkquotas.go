package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// What a ResourceQuota can limit the number of.
const (
	quotaOfSnapshots      corev1.ResourceName = "count/volumesnapshots." + api.SnapshotGroup
	quotaOfGroupSnapshots corev1.ResourceName = "count/volumegroupsnapshots.groupsnapshot.storage.k8s.io"
	quotaOfClaims         corev1.ResourceName = "persistentvolumeclaims"
)

// checkQuotas reports a namespace with more than half of what a node has for snapshots, or for the records of volumes, if no quota limits their
// number: it can take the rest. A quota of storage counts neither.
func checkQuotas(f *facts, a *answer, found func(where, what, fix string)) {
	if f.unreadable[theQuotas] {
		return
	}
	for _, g := range a.page.Groups {
		for _, p := range g.Pools {
			f.checkSnapshotQuotas(a, g, p, found)
		}
		f.checkClaimQuotas(a, g, found)
	}
}

// checkSnapshotQuotas compares the snapshots of each namespace with what a thin pool provisions and can provision. Those of a group snapshot exist
// before their VolumeSnapshots, so these need another quota.
func (f *facts) checkSnapshotQuotas(a *answer, g report.Group, p report.Pool, found func(where, what, fix string)) {
	limit, known := f.limitOf(a.page, g, p)
	if !known {
		return
	}
	size, count, groups := map[string]lvm.Bytes{}, map[string]int{}, map[string]bool{}
	for _, sn := range a.page.Snapshots {
		if space := f.namespaceOf(a.page, sn); sn.Group == g.Name && isInPool(a.page, sn, g, p) && space != "" {
			size[space] += sn.Size
			count[space]++
			groups[space] = groups[space] || isMember(sn)
		}
	}
	for _, space := range slices.Sorted(maps.Keys(size)) {
		missing := quotaOfSnapshots
		if f.limits(space, quotaOfSnapshots) {
			missing = quotaOfGroupSnapshots
		}
		if size[space] > limit/2 && (missing == quotaOfSnapshots || groups[space] && !f.limits(space, missing)) {
			found("namespace "+space, fmt.Sprintf("its %d snapshots on node %s count as %s in thin pool %s/%s, more than half of the %s that the pool can provision, and no ResourceQuota limits their number. With more of them no volume is created or expanded there",
				count[space], a.node, size[space], g.Name, p.Name, limit), fmt.Sprintf("delete snapshots, or limit their number: kubectl -n %s create quota nodelvm-snapshots --hard=%s=NUMBER", printable.ShellWord(space), missing))
		}
	}
}

// limitOf returns what a thin pool provisions and can provision; known is false if no class of a node has the pool.
func (f *facts) limitOf(page report.Node, g report.Group, p report.Pool) (limit lvm.Bytes, known bool) {
	for _, class := range f.classes {
		c := classOf(page, class.Name)
		if c == nil || poolOf(class.Parameters) != p.Name {
			continue
		}
		for _, offer := range c.Offers {
			if offer.Group == g.Name {
				limit, known = max(limit, p.Provisioned+offer.Available), true
			}
		}
	}
	return limit, known
}

// isInPool reports whether a snapshot is in a thin pool: that of its volume, or the group's only one.
func isInPool(page report.Node, sn report.Snapshot, g report.Group, p report.Pool) bool {
	source := find(page.Volumes, func(v *report.Volume) bool { return v.ID == sn.Source })
	if source == nil {
		return len(g.Pools) == 1
	}
	return source.Pool == p.Name
}

// namespaceOf returns the namespace of a snapshot: that of its VolumeSnapshot, or of the claim that it was taken of; "": unknown.
func (f *facts) namespaceOf(page report.Node, sn report.Snapshot) string {
	if of := find(f.contents, func(c *content) bool { return c.handle() == sn.ID && c.name() != "" }); of != nil {
		return of.Spec.VolumeSnapshotRef.Namespace
	}
	if source := find(page.Volumes, func(v *report.Volume) bool { return v.ID == sn.Source }); source != nil {
		space, _, _ := strings.Cut(source.Claim, "/")
		return space
	}
	return ""
}

// recordSize is about what a volume takes of its group's metadata area.
const recordSize = 3 * lvm.KiB

// checkClaimQuotas reports the namespace whose volumes take most of what is used of a metadata area that is more than half full.
func (f *facts) checkClaimQuotas(a *answer, g report.Group, found func(where, what, fix string)) {
	used, count := g.MetadataSize-g.MetadataFree, map[string]int{}
	if used <= g.MetadataSize/2 {
		return
	}
	for _, v := range a.page.Volumes {
		if space, _, claimed := strings.Cut(v.Claim, "/"); claimed && v.Group == g.Name {
			count[space]++
		}
	}
	for _, space := range slices.Sorted(maps.Keys(count)) {
		n := count[space]
		if recordSize*lvm.Bytes(n) > used/2 && !f.limits(space, f.quotasOfClaims()...) {
			found("namespace "+space, fmt.Sprintf("its %d volumes in volume group %s of node %s take most of what is used of the group's metadata area. It is more than half full, and no ResourceQuota limits the number of claims: with more of them, however small, no volume is created or expanded there",
				n, g.Name, a.node), fmt.Sprintf("limit it: kubectl -n %s create quota nodelvm-claims --hard=%s=NUMBER", printable.ShellWord(space), quotaOfClaims))
		}
	}
}

// quotasOfClaims are the names by which a quota limits the number of claims: of all, or of one class of the driver.
func (f *facts) quotasOfClaims() []corev1.ResourceName {
	names := []corev1.ResourceName{quotaOfClaims, "count/" + quotaOfClaims}
	for _, class := range f.classes {
		names = append(names, corev1.ResourceName(class.Name)+".storageclass.storage.k8s.io/"+quotaOfClaims)
	}
	return names
}

// limits reports whether a quota of a namespace limits one of these.
func (f *facts) limits(namespace string, names ...corev1.ResourceName) bool {
	return slices.ContainsFunc(f.quotas, func(q corev1.ResourceQuota) bool {
		return q.Namespace == namespace && slices.ContainsFunc(names, func(name corev1.ResourceName) bool {
			_, has := q.Spec.Hard[name]
			return has
		})
	})
}
