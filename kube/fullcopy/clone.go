package fullcopy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// The volume that is cloned changes, so a clone on another node is a full copy of a snapshot of it. The node that has the volume takes one for each
// clone, whose name is that of the clone. The snapshot's tags have the clone's claim, and are the record by which checkClone removes it: when the claim
// no longer waits on another node, whatever became of it. A further snapshot for the same claim is another one, from which the copy begins again.

// maxClones is how many snapshots of one volume exist for clones on other nodes: no quota of snapshots counts them.
const maxClones = 16

// How often runClones reads the snapshots that exist, and tries again to take one.
const (
	clonesLater = time.Minute
	offerAgain  = 10 * time.Second
)

// OfferClone is kube.Copies'.
func (a *Agent) OfferClone(claim *corev1.PersistentVolumeClaim) {
	a.mu.Lock()
	a.clones[kubeclient.KeyOf(claim)] = true
	a.mu.Unlock()
	poke(a.asked)
}

// runClones takes the snapshots of clones, and removes those that no clone needs, until ctx ends. It does one thing at a time.
func (a *Agent) runClones(ctx context.Context) {
	for ctx.Err() == nil {
		again := clonesLater
		if a.offerClones(ctx) {
			again = offerAgain
		}
		a.checkClones(ctx)
		select {
		case <-time.After(again):
		case <-a.asked:
		case <-ctx.Done():
		}
	}
}

// offerClones offers what OfferClone was called for; soon: something failed, other than for capacity.
func (a *Agent) offerClones(ctx context.Context) (soon bool) {
	a.mu.Lock()
	keys := slices.Sorted(maps.Keys(a.clones))
	clear(a.clones)
	a.mu.Unlock()
	for _, key := range keys {
		err := a.offerClone(ctx, key)
		if err == nil {
			continue
		}
		a.log.WarnContext(ctx, "cannot take the snapshot of a clone", "claim", key, "error", err)
		if kind := lvm.KindOf(err); kind == lvm.KindInvalid || kind == lvm.KindNotFound {
			continue // until the claim changes
		}
		a.mu.Lock()
		a.clones[key] = true
		a.mu.Unlock()
		soon = soon || lvm.KindOf(err) != lvm.KindInsufficientCapacity
	}
	return soon
}

// offerClone takes the snapshot of a clone that waits on another node, or finds it, and says on the PersistentVolume of its source how to copy it.
func (a *Agent) offerClone(ctx context.Context, key string) error {
	namespace, name := kubeclient.ClaimKey(key)
	claim, err := a.client.Claim(ctx, namespace, name)
	if err != nil || claim == nil || !waitsElsewhere(claim, a.node) {
		return err
	}
	pv, id, err := cloned(ctx, a.client, claim, a.node)
	if err != nil {
		return err
	}
	if asked, has := pending.BytesOf(claim.Spec.Resources.Requests.Storage()), pending.BytesOf(pv.Spec.Capacity.Storage()); asked < has { // csi-provisioner says so on the claim
		return lvm.Errorf(lvm.KindInvalid, "the claim requests %s, and its source has %s; a quota would not count the snapshot", asked, has)
	}
	sn, err := a.snapshotFor(ctx, claim, pv, id)
	if err != nil {
		return a.tellRefused(ctx, claim, err)
	}
	offer, err := a.Offer(sn)
	if err != nil || offer == pv.Annotations[api.AnnotationCloneOffer+string(claim.UID)] {
		return err
	}
	return a.client.Annotate(ctx, pv, map[string]any{api.AnnotationCloneOffer + string(claim.UID): offer})
}

// tellRefused reports on a clone why there is no snapshot to copy, if that does not end by itself, and returns the error.
func (a *Agent) tellRefused(ctx context.Context, claim *corev1.PersistentVolumeClaim, err error) error {
	if kind := lvm.KindOf(err); kind != lvm.KindInvalid && kind != lvm.KindInsufficientCapacity {
		return err
	}
	return errors.Join(err, a.events.RecordOnce(ctx, kubeclient.Event{
		About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: corev1.EventTypeWarning, Reason: api.ReasonSourceNotCopied,
		Message: fmt.Sprintf("node %s has the source of this claim, and cannot take the snapshot that node %s copies: %v", a.node, kubeclient.Quoted(claim.Annotations[api.AnnotationSelectedNode]), err),
	}))
}

// cloneName is the CSI name of the snapshot from which a clone is copied.
func cloneName(claim *corev1.PersistentVolumeClaim) string {
	return api.PrefixClone + string(claim.UID)
}

// cloneID is the handle of that snapshot of a volume.
func cloneID(claim *corev1.PersistentVolumeClaim, volume lvm.ID) lvm.ID {
	return lvm.ID{VG: volume.VG, LV: lvm.SnapshotName(cloneName(claim))}
}

// checkMost refuses a further snapshot of a volume for a clone. It counts those that LVM has for others: while the API server refuses their offers, no
// PersistentVolume shows them, and a failed command leaves unfinished ones. runClones takes one at a time.
func (a *Agent) checkMost(ctx context.Context, id lvm.ID, name string) error {
	all, err := a.volumes.CloneSnapshots(ctx)
	clones := slices.DeleteFunc(slices.Clone(all), func(sn lvm.Snapshot) bool { return sn.Source != id || sn.Name == name })
	if err == nil && len(clones) >= maxClones {
		err = lvm.Errorf(lvm.KindBusy, "%d clones of volume %s are copied to other nodes; others wait for these", len(clones), id)
	}
	return err
}

// snapshotFor takes the snapshot of a clone, or finds it. id is the handle of pv.
func (a *Agent) snapshotFor(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, id lvm.ID) (lvm.Snapshot, error) {
	if pv.Annotations[api.AnnotationMoveRecord] != "" {
		return lvm.Snapshot{}, lvm.Errorf(lvm.KindBusy, "PersistentVolume %s moves to another node; the clone begins when it is there", pv.Name)
	}
	spec := lvm.SnapshotSpec{Name: cloneName(claim), Source: id, Claim: kubeclient.KeyOf(claim)}
	if sn, err := a.volumes.LookupSnapshot(ctx, cloneID(claim, id)); err == nil && sn.Source == id {
		return sn, nil
	}
	if err := a.checkMost(ctx, id, spec.Name); err != nil {
		return lvm.Snapshot{}, err
	}
	if a.prepare != nil {
		end, err := a.prepare(ctx, id)
		if err != nil {
			return lvm.Snapshot{}, err
		}
		defer end()
	}
	return a.volumes.CreateSnapshot(ctx, spec)
}

// checkClones goes through the snapshots of clones on this node.
func (a *Agent) checkClones(ctx context.Context) {
	all, err := a.volumes.CloneSnapshots(ctx)
	if err != nil {
		a.log.WarnContext(ctx, "cannot list the snapshots of clones on this node", "error", err)
		return
	}
	for _, sn := range all {
		if err := a.checkClone(ctx, sn); err != nil {
			a.log.WarnContext(ctx, "cannot remove the snapshot of a clone yet, or decide whether it is needed", "snapshot", sn.ID.String(), "claim", sn.Claim, "error", err)
		}
	}
}

// checkClone removes a snapshot that no clone on another node needs. Its offer goes first: a snapshot without one is found again.
func (a *Agent) checkClone(ctx context.Context, sn lvm.Snapshot) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	namespace, name := kubeclient.ClaimKey(sn.Claim)
	claim, err := a.client.Claim(ctx, namespace, name)
	if err != nil || claim != nil && sn.Name == cloneName(claim) && waitsElsewhere(claim, a.node) {
		return err
	}
	pv, err := a.volumeOf(ctx, sn.Source)
	if err != nil {
		return err
	}
	annotation := api.AnnotationCloneOffer + strings.TrimPrefix(sn.Name, api.PrefixClone)
	if pv != nil && pv.Annotations[annotation] != "" {
		if err := a.client.Annotate(ctx, pv, map[string]any{annotation: nil}); err != nil {
			return err
		}
	}
	if err := a.volumes.DeleteSnapshot(ctx, sn.ID); err != nil {
		return err
	}
	a.log.InfoContext(ctx, "removed the snapshot of a clone, which waits on no other node any more", "snapshot", sn.ID.String(), "claim", sn.Claim)
	return nil
}

// waitsElsewhere reports whether a claim waits for its volume on another node.
func waitsElsewhere(claim *corev1.PersistentVolumeClaim, node string) bool {
	on := claim.Annotations[api.AnnotationSelectedNode]
	return on != node && waitsOn(claim, on)
}

// volumeOf finds the PersistentVolume with a handle, which usually has the name of the logical volume; nil: none has.
func (a *Agent) volumeOf(ctx context.Context, id lvm.ID) (found *corev1.PersistentVolume, err error) {
	has := func(pv *corev1.PersistentVolume) bool {
		return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == api.DriverName && pv.Spec.CSI.VolumeHandle == id.String()
	}
	if found, err = a.client.Volume(ctx, id.LV); err != nil || found != nil && has(found) {
		return found, err
	}
	found = nil
	err = a.client.EachVolume(ctx, func(pv *corev1.PersistentVolume) {
		if has(pv) {
			found = pv.DeepCopy()
		}
	})
	return found, err
}

// cloned returns the PersistentVolume of the claim that a claim is cloned from, and its handle, if the objects of the cluster say so. The claim names
// the other one, in its own namespace. That and the PersistentVolume name each other, which is on the node; "": on any.
func cloned(ctx context.Context, client *kubeclient.Client, claim *corev1.PersistentVolumeClaim, node string) (*corev1.PersistentVolume, lvm.ID, error) {
	refuse := func(kind lvm.Kind, err error) (*corev1.PersistentVolume, lvm.ID, error) {
		return nil, lvm.ID{}, lvm.Errorf(kind, "cannot clone for claim %s: %w", kubeclient.KeyOf(claim), err)
	}
	undecided := func(err error) (*corev1.PersistentVolume, lvm.ID, error) {
		return refuse(lvm.KindBusy, errors.Join(err, errUndecided))
	}
	name := pending.ClonedFrom(claim)
	origin, err := client.Claim(ctx, claim.Namespace, name)
	switch {
	case err != nil:
		return undecided(err)
	case origin == nil:
		return refuse(lvm.KindNotFound, errors.New("its source, claim "+kubeclient.Quoted(name)+", does not exist"))
	}
	pv, err := client.Volume(ctx, origin.Spec.VolumeName)
	switch {
	case err != nil:
		return undecided(err)
	case pv == nil:
		return undecided(errors.New("the PersistentVolume of claim " + kubeclient.KeyOf(origin) + " does not exist"))
	case node == "":
		node = pending.NodeOf(pv)
	}
	if err := kubeclient.Chain(pv, origin, node); err != nil {
		return refuse(lvm.KindInvalid, err)
	}
	id, err := lvm.ParseID(pv.Spec.CSI.VolumeHandle)
	if err != nil {
		return refuse(lvm.KindInvalid, err)
	}
	return pv, id, nil
}

// mayClone decides whether a peer may copy a snapshot for a clone of a volume of this node: it was taken for exactly this claim, of the volume that the
// claim's source has.
func (a *Agent) mayClone(ctx context.Context, claim *corev1.PersistentVolumeClaim, of lvm.ID) error {
	_, id, err := cloned(ctx, a.client, claim, a.node)
	if err != nil {
		return err
	}
	sn, err := a.volumes.LookupSnapshot(ctx, of)
	switch {
	case err != nil:
		return err
	case sn.Name != cloneName(claim) || sn.Claim != kubeclient.KeyOf(claim) || sn.Source != id:
		return lvm.Errorf(lvm.KindInvalid, "snapshot %s was not taken for claim %s", of, kubeclient.KeyOf(claim))
	}
	return nil
}

// cloneOffer is snapshotOffer for a clone: the snapshot is the one that was taken for it.
func (a *Agent) cloneOffer(ctx context.Context, claim *corev1.PersistentVolumeClaim, spec lvm.Spec) (text, node string, snapshot lvm.ID, err error) {
	pv, id, err := cloned(ctx, a.client, claim, "")
	switch {
	case err != nil:
		return "", "", lvm.ID{}, err
	case id != spec.Source:
		return "", "", lvm.ID{}, lvm.Errorf(lvm.KindInvalid, "cannot clone for claim %s: the claim that it names has volume %s, and the request is for %s", spec.Claim, id, spec.Source)
	}
	return pv.Annotations[api.AnnotationCloneOffer+string(claim.UID)], pending.NodeOf(pv), cloneID(claim, id), nil
}
