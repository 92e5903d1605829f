package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/lvm"
)

// A VolumeSnapshotContent can name a snapshot of any node: the API server does not know which node has a volume group. So a
// node's token can write another node's snapshot into a content of its own node, and csi-provisioner on the other node, which
// takes the handle from that content, would show a user of the cluster what others wrote. A node makes copies only of the
// snapshots in the contents that are labelled with its own name, which no other node's token can write.

// MayRestore tells whether the volume of a claim may be made as a copy of a snapshot on this node: the claim names a
// VolumeSnapshot, that one and a content of this node name each other, and the content has exactly this snapshot. It costs one
// request. lvm.KindBusy: that cannot be told, or not yet; lvm.KindNotFound: the claim or the VolumeSnapshot is gone;
// lvm.KindInvalid: it may not.
func (a *Agent) MayRestore(ctx context.Context, namespace, name, uid string, of lvm.ID) error {
	ctx, cancel := context.WithTimeout(ctx, companyPatience)
	defer cancel()
	claim, ok := a.claims.waiting(namespace + "/" + name)
	if !ok || string(claim.UID) != uid {
		return a.notSeen(ctx, namespace, name, uid)
	}
	from := sourceOf(claim)
	if from.kind != kindSnapshot {
		return lvm.Errorf(lvm.KindInvalid, "the volume of claim %s cannot be a copy of snapshot %s: the claim's dataSourceRef names no VolumeSnapshot in its own namespace",
			keyOf(claim), of)
	}
	_, snapshotName := claimKey(from.key)
	s, err := a.client.snapshot(ctx, namespace, snapshotName)
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "whether claim %s may become a copy of snapshot %s cannot be told: %w", keyOf(claim), of, err)
	case s == nil:
		return lvm.Errorf(lvm.KindNotFound, "claim %s is to become a copy of VolumeSnapshot %s, which is not there", keyOf(claim), from.key)
	}
	return restorable(claim, s, a.contents.named(s.Status.Content), a.node, of)
}

// notSeen is the error for a claim that the watch has not brought, or has brought as one that waits for nothing.
func (a *Agent) notSeen(ctx context.Context, namespace, name, uid string) error {
	claim, err := a.client.claim(ctx, namespace, name)
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "whether claim %s/%s may become a copy of a snapshot cannot be told: %w", namespace, name, err)
	case claim == nil || string(claim.UID) != uid || !isOpen(claim):
		return lvm.Errorf(lvm.KindNotFound, "claim %s/%s (UID %s) is gone, or waits for no volume: no copy of a snapshot is made for it", namespace, name, uid)
	}
	return lvm.Errorf(lvm.KindBusy, "claim %s/%s is too new: the watch on claims has not brought it yet; ask again", namespace, name)
}

// restorable holds a claim, the VolumeSnapshot that it names, the content of this node that the VolumeSnapshot names (nil: none
// is known), and a snapshot against each other.
func restorable(claim *corev1.PersistentVolumeClaim, s *snapshot, c *content, node string, of lvm.ID) error {
	if c == nil || c.Spec.VolumeSnapshotRef.UID == "" { // it may have become ready, or bound, a moment ago
		return lvm.Errorf(lvm.KindBusy, "cannot restore snapshot %[2]s for claim %[1]s yet: VolumeSnapshot %[3]s/%[4]s names VolumeSnapshotContent %[5]s, which is not bound and ready on node %[6]s, where that snapshot is; retry. If the content's label %[7]s names another node, correct it",
			keyOf(claim), of, s.Namespace, s.Name, quoted(s.Status.Content), node, labelManagedBy)
	}
	if err := snapshotChain(c, s, node); err != nil {
		return lvm.Errorf(lvm.KindInvalid, "cannot restore snapshot %[2]s for claim %[1]s: %[3]w", keyOf(claim), of, err)
	}
	if handle, err := lvm.ParseID(c.Status.SnapshotHandle); err != nil || handle != of {
		return lvm.Errorf(lvm.KindInvalid, "cannot restore snapshot %[2]s for claim %[1]s: VolumeSnapshotContent %[3]s of its VolumeSnapshot %[4]s/%[5]s has snapshot %[6]s",
			keyOf(claim), of, c.Name, s.Namespace, s.Name, quoted(c.Status.SnapshotHandle))
	}
	return nil
}
