// Package fullcopy restores snapshots of other nodes, and clones volumes of other nodes: the part in the Kubernetes API. It works where volumes can move
// (nodelvm serve --move), for claims of classes with restoreOnOtherNodes. Package move copies.
//
// One restore, of a snapshot on one node (source) by a claim for which the scheduler chose another one (target):
//
//	source  package kube    VolumeSnapshotContent: how to copy the snapshot (api.AnnotationCopyOffer)
//	target  Copy            claim: the key of the process that copies (api.AnnotationCopyKey)
//	target  Copy            a logical volume in the state receiving, with its source in its tags, in one commit; the copy begins
//	source  MayPull         for each pull, and each minute while it runs
//	target  Copy            the volume is received, and becomes ready; CreateVolume returns it
//
// A clone has its own snapshot. Before and after these steps:
//
//	source  package kube    claim that is cloned: the finalizer with which csi-provisioner on the target sees it (api.FinalizerCloned)
//	source  offerClone      a snapshot, with the clone in its tags, in one commit
//	source  offerClone      PersistentVolume that is cloned: how to copy the snapshot (api.AnnotationCloneOffer), in place of the content
//	source  checkClone     when the clone waits on no other node: that annotation, and then the snapshot, are removed
//
// csi-provisioner calls CreateVolume, and so Copy, until the copy is complete: Copy's errors say lvm.KindBusy meanwhile, after which it neither returns
// the claim to the scheduler nor forgets a claim that is deleted.
//
// The source keeps nothing but the snapshots of clones that wait, which their tags record. What the target keeps is the logical volume. One that is not
// ready was never reported, and its snapshot stays, or is taken again, so to discard it loses nothing: Run does that when its claim does not exist, is
// bound, or has another selected node. A copy continues only with the snapshot with which it began, by its UUID.
//
// Who can do what. The source answers a token that is bound to a node if the API server has a claim that waits for a volume on that node. The claim's
// class lets it be placed so. It names a VolumeSnapshot in its own namespace with exactly this snapshot, or a claim there, of whose volume this
// snapshot was taken for it. And it has the peer's key. Whoever may create such a claim can read the source anyway. A stolen node's token can select its
// own node for a waiting claim with a source, and so copy what that claim names; nothing else. The offers are where only the source's node can write.
// The key on the claim is of no use to a tenant: it opens nothing without the token.
package fullcopy
