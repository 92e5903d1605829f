package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// A VolumeSnapshotContent can name a snapshot of any node: the API server does not know which node has a volume group. So a
// node's token can write another node's snapshot into one of that node's own contents. csi-provisioner on the other node takes
// the handle from that content and would give a user data of others. A node restores only the snapshots in the contents
// with its own name in their label, which no other node's token can write.

// MayRestore decides whether the driver may restore a snapshot on this node for a claim: the claim names a VolumeSnapshot,
// that and a content of this node name each other, and the content has exactly this snapshot. It costs one request.
// lvm.KindBusy: undecided, retry; lvm.KindNotFound: the claim or the VolumeSnapshot does not exist; lvm.KindInvalid:
// refused.
func (a *Agent) MayRestore(ctx context.Context, namespace, name, uid string, of lvm.ID) error {
	ctx, cancel := context.WithTimeout(ctx, podClaimsTimeout)
	defer cancel()
	claim, ok := a.claims.waiting(namespace + "/" + name)
	if !ok || string(claim.UID) != uid {
		return a.notSeen(ctx, namespace, name, uid)
	}
	from := sourceOf(claim)
	if from.kind != kubeclient.KindSnapshot {
		return lvm.Errorf(lvm.KindInvalid, "cannot restore snapshot %[2]s for claim %[1]s: the claim's dataSourceRef names no VolumeSnapshot in its own namespace",
			kubeclient.KeyOf(claim), of)
	}
	_, snapshotName := kubeclient.ClaimKey(from.key)
	s, err := a.client.Snapshot(ctx, namespace, snapshotName)
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "cannot determine whether claim %s may restore snapshot %s: %w", kubeclient.KeyOf(claim), of, err)
	case s == nil:
		return lvm.Errorf(lvm.KindNotFound, "cannot restore a snapshot for claim %s: its VolumeSnapshot %s does not exist", kubeclient.KeyOf(claim), from.key)
	}
	content, _, _ := a.contents.Find(s.Status.Content)
	return restorable(claim, s, content, a.node, of)
}

// notSeen is the error for a claim that is not in the store of waiting claims.
func (a *Agent) notSeen(ctx context.Context, namespace, name, uid string) error {
	claim, err := a.client.Claim(ctx, namespace, name)
	switch {
	case err != nil:
		return lvm.Errorf(lvm.KindBusy, "cannot determine whether claim %s/%s may restore a snapshot: %w", namespace, name, err)
	case claim == nil || string(claim.UID) != uid || !isOpen(claim):
		return lvm.Errorf(lvm.KindNotFound, "cannot restore a snapshot for claim %s/%s (UID %s): the claim does not exist, or does not wait for a volume", namespace, name, uid)
	}
	return lvm.Errorf(lvm.KindBusy, "cannot restore a snapshot for claim %s/%s yet: the watch on claims has not delivered it; retry", namespace, name)
}

// restorable checks a claim, the VolumeSnapshot that it names, the content of this node that the VolumeSnapshot names (nil:
// none is known), and a snapshot against each other.
func restorable(claim *corev1.PersistentVolumeClaim, s *kubeclient.Snapshot, c *kubeclient.Content, node string, of lvm.ID) error {
	if c == nil || c.Spec.VolumeSnapshotRef.UID == "" { // it may become ready, or bound, in a moment
		return lvm.Errorf(lvm.KindBusy, "cannot restore snapshot %[2]s for claim %[1]s yet: VolumeSnapshot %[3]s/%[4]s names VolumeSnapshotContent %[5]s, which is not bound and ready on node %[6]s, where that snapshot is; retry. If the content's label %[7]s names another node, correct it",
			kubeclient.KeyOf(claim), of, s.Namespace, s.Name, kubeclient.Quoted(s.Status.Content), node, api.LabelManagedBy)
	}
	if err := kubeclient.SnapshotChain(c, s, node); err != nil {
		return lvm.Errorf(lvm.KindInvalid, "cannot restore snapshot %[2]s for claim %[1]s: %[3]w", kubeclient.KeyOf(claim), of, err)
	}
	if handle, err := lvm.ParseID(c.Status.SnapshotHandle); err != nil || handle != of {
		return lvm.Errorf(lvm.KindInvalid, "cannot restore snapshot %[2]s for claim %[1]s: VolumeSnapshotContent %[3]s of its VolumeSnapshot %[4]s/%[5]s has snapshot %[6]s",
			kubeclient.KeyOf(claim), of, c.Name, s.Namespace, s.Name, kubeclient.Quoted(c.Status.SnapshotHandle))
	}
	if !kubeclient.OwnsSnapshot(c, of) && !kubeclient.OwnsMember(c, s, of) {
		return lvm.Errorf(lvm.KindInvalid, "cannot restore snapshot %[2]s for claim %[1]s: VolumeSnapshotContent %[3]s has it, but the driver did not take it for VolumeSnapshot %[4]s/%[5]s (UID %[6]s)",
			kubeclient.KeyOf(claim), of, c.Name, s.Namespace, s.Name, s.UID)
	}
	return nil
}
