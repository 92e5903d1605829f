package kube

import (
	"context"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
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
	return kubeclient.RestoreChain(claim, s, content, a.node, of)
}

// MayCreate refuses (lvm.KindInvalid) an empty volume for a claim that was created with a data source which the API server dropped. It answers from memory.
func (a *Agent) MayCreate(namespace, name, uid string) error {
	claim, ok := a.claims.waiting(namespace + "/" + name)
	if !ok || string(claim.UID) != uid || !pending.LostSource(claim) {
		return nil
	}
	return lvm.Errorf(lvm.KindInvalid, "no volume is created for claim %s: %s; %s", kubeclient.KeyOf(claim), pending.SourceLost.Text, pending.SourceLost.Fix)
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
