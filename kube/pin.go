package kube

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// A restore or clone is possible only on the node of its source. Kubernetes does not know this: the scheduler would choose
// any node with enough capacity. So the node with the source sets itself as the claim's selected node, instead of another
// one. Then csi-provisioner creates the volume, with or without a pod, and the scheduler assigns the pod to that node. If a rule of
// the pod excludes that node (pinrules.go), the pod could never start: then the claim stays unbound.
// The scheduler alone chooses the node of a restore or clone of a class with restoreOnOtherNodes (copyoffer.go).

// source is the data source of a claim. The zero value is none.
type source struct {
	kind string // KindSnapshot or KindClaim
	key  string // namespace/name
}

// sourceOf returns the claim's data source in its own namespace. Other kinds are for volume populators, which place their
// claims themselves.
func sourceOf(claim *corev1.PersistentVolumeClaim) source {
	if name := pending.SnapshotOf(claim); name != "" {
		return source{kubeclient.KindSnapshot, claim.Namespace + "/" + name}
	}
	if name := pending.ClonedFrom(claim); name != "" {
		return source{kubeclient.KindClaim, claim.Namespace + "/" + name}
	}
	return source{}
}

// pin selects this node for the claim if its source is here. Until then it does not retry: ready snapshots and bound claims
// wake their restores and clones.
func (a *Agent) pin(ctx context.Context, claim *corev1.PersistentVolumeClaim, from source) (tried bool, err error) {
	here, binding, err := a.holds(ctx, from)
	if binding {
		a.queue.AddAfter(kubeclient.ObjectKey{Kind: kubeclient.KindClaim, Key: kubeclient.KeyOf(claim)}, kubeclient.BackoffFirst) // no watch announces that the snapshot names its content
	}
	if err != nil || !here {
		return binding, errors.Join(err, a.reportShared(ctx, claim, api.ReasonDuplicateVolumeHandle,
			fmt.Sprintf("node %s is not selected for this clone of claim %s", a.node, from.key), err))
	}
	if may, err := a.mayPin(ctx, claim, from); err != nil || !may {
		return true, err
	}
	before := claim.Annotations[api.AnnotationSelectedNode]
	_, err = a.client.PatchClaim(ctx, claim, "", kubeclient.Patch{Annotations: map[string]any{api.AnnotationSelectedNode: a.node}})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return true, fmt.Errorf("cannot select the node of the source, %[2]s %[3]s, for claim %[1]s: %[4]w", kubeclient.KeyOf(claim), from.kind, from.key, err)
	}
	a.log.InfoContext(ctx, "selected this node for a claim because it has the claim's source", "claim", kubeclient.KeyOf(claim), "kind", from.kind, "source", from.key, "selectedBefore", before)
	message := fmt.Sprintf("the source of this claim, %s %s, is on node %s: node %s is selected", from.kind, from.key, a.node, a.node)
	if before != "" {
		message += " instead of " + before
	}
	return true, a.events.Record(ctx, kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: corev1.EventTypeNormal, Reason: api.ReasonSourceNodeSelected, Message: message})
}

// holds reports whether the source is ready and on this node's disks; binding: it may become ready once a snapshot and its
// content name each other.
func (a *Agent) holds(ctx context.Context, from source) (here, binding bool, err error) {
	if from.kind == kubeclient.KindSnapshot {
		handle, binding, err := a.handleOf(ctx, from.key)
		if err != nil || handle == "" {
			return false, binding, err
		}
		here, err = a.hasSnapshot(ctx, handle)
		return here, false, err
	}
	pv, err := a.volumeOf(ctx, from.key)
	return pv != nil, false, err
}

// volumeOf returns the PersistentVolume of a claim if its volume is on this node's disks; nil: it is not.
func (a *Agent) volumeOf(ctx context.Context, key string) (*corev1.PersistentVolume, error) {
	own, ok := a.claims.bound(key)
	if !ok {
		return nil, nil
	}
	pv, err := a.client.Volume(ctx, own.volume)
	if err != nil || pv == nil || kubeclient.Chain(pv, own.claim(key), a.node) != nil {
		return nil, err
	}
	id, err := lvm.ParseID(pv.Spec.CSI.VolumeHandle)
	if err == nil {
		_, err = a.volumes.Lookup(ctx, id)
	}
	here, err := found(err)
	if err != nil || !here {
		return nil, err
	}
	if err := a.checkHandle(ctx, pv); err != nil {
		return nil, err
	}
	return pv, nil
}

// handleOf returns the handle of a snapshot that is ready on this node; "": it is not. A content counts only if the
// snapshot names it, too: several contents may name one snapshot, and everyone who may create contents can name any snapshot.
// binding: the snapshot, or one of these contents, is not bound yet.
func (a *Agent) handleOf(ctx context.Context, key string) (handle string, binding bool, err error) {
	c, binding, err := a.contentOf(ctx, key)
	if c == nil {
		return "", binding, err
	}
	return c.Status.SnapshotHandle, false, nil
}

// contentOf returns the content of a snapshot that is ready on this node; nil: it is not.
func (a *Agent) contentOf(ctx context.Context, key string) (content *kubeclient.Content, binding bool, err error) {
	contents := a.contents.Items(func(c *kubeclient.Content) bool { return c.SnapshotKey() == key })
	if len(contents) == 0 {
		return nil, false, nil
	}
	namespace, name := kubeclient.ClaimKey(key)
	s, err := a.client.Snapshot(ctx, namespace, name)
	if err != nil || s == nil {
		return nil, err == nil, err
	}
	for _, c := range contents {
		if kubeclient.SnapshotChain(c, s, a.node) == nil {
			return c, false, nil
		}
		binding = binding || c.Spec.VolumeSnapshotRef.UID == ""
	}
	return nil, binding || s.Status.Content == "", nil
}

// found turns a lookup's error into whether the object exists; an inconclusive error remains an error.
func found(err error) (bool, error) {
	if err == nil {
		return true, nil
	}
	switch lvm.KindOf(err) {
	case lvm.KindNotFound, lvm.KindNotLocal, lvm.KindNotManaged, lvm.KindInvalid:
		return false, nil
	case lvm.KindInternal, lvm.KindOutOfRange, lvm.KindExists, lvm.KindBusy, lvm.KindInUse, lvm.KindInsufficientCapacity, lvm.KindConflict:
	}
	return false, err
}
