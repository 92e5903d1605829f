package kube

import (
	"context"
	"errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// SourceNode returns the node that has the source of a claim of a pod; "": there is no such node, because the source is another driver's, or the objects
// do not give it to the claim. lvm.KindBusy: it is not known, or not yet. It costs two requests, and one if this node has the snapshot. Whoever creates
// claims chooses the source's name, and learns only the node of a source in its own namespace.
func (a *Agent) SourceNode(ctx context.Context, namespace string, of api.PodClaim) (node string, err error) {
	ctx, cancel := context.WithTimeout(ctx, podClaimsTimeout)
	defer cancel()
	kind, name, find := kubeclient.KindSnapshot, of.FromSnapshot, a.nodeOfSnapshot
	if of.FromClaim != "" {
		kind, name, find = kubeclient.KindClaim, of.FromClaim, a.nodeOfVolume
	}
	if node, err = find(ctx, namespace, name); err != nil {
		err = lvm.Errorf(lvm.KindBusy, "%s %s: %w", kind, name, err)
	}
	return node, err
}

// nodeOfVolume returns the node of the volume of a claim.
func (a *Agent) nodeOfVolume(ctx context.Context, namespace, name string) (string, error) {
	pv, err := a.volumeOfClaim(ctx, namespace+"/"+name)
	switch {
	case err != nil:
		return "", err
	case pv == nil:
		return "", errors.New("it does not exist, or is not bound")
	}
	return pending.NodeOf(pv), nil
}

// nodeOfSnapshot returns the node of a VolumeSnapshot. The content has it before the snapshot is ready.
func (a *Agent) nodeOfSnapshot(ctx context.Context, namespace, name string) (string, error) {
	s, err := a.client.Snapshot(ctx, namespace, name)
	switch {
	case err != nil:
		return "", err
	case s == nil:
		return "", errors.New("it does not exist")
	case s.Status.Content == "":
		return "", errors.New("it has no VolumeSnapshotContent yet")
	}
	c, here, _ := a.contents.Find(s.Status.Content)
	if !here {
		if c, err = a.client.Content(ctx, s.Status.Content); err != nil {
			return "", err
		}
	}
	switch {
	case c == nil:
		return "", errors.New("its VolumeSnapshotContent " + kubeclient.Quoted(s.Status.Content) + " does not exist")
	case c.Spec.Driver != api.DriverName:
		return "", nil
	}
	node := c.Labels[api.LabelManagedBy]
	switch {
	case c.Spec.VolumeSnapshotRef.UID == "" || node == "":
		return "", errors.New("its VolumeSnapshotContent " + kubeclient.Quoted(c.Name) + " is not bound to it, or names no node yet")
	case kubeclient.SnapshotChain(c, s, node) != nil:
		return "", nil //nolint:nilerr // another snapshot's: csi-provisioner restores nothing from it
	}
	return node, nil
}
