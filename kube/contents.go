package kube

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// A csi-snapshotter sees only the contents with its node in their label. The snapshot controller sets that label if it runs with
// --enable-distributed-snapshotting. The controllers of many distributions run without it. A pre-provisioned content, which an admin
// creates for an existing snapshot, has no label either. So the node that has the volume or the snapshot sets the label.

const (
	unlabelledInterval = time.Minute     // No event announces a disk that appears later; a check sends no request to the API server.
	kindAgain          = 5 * time.Minute // Interval of the check whether a cluster has gained the snapshot API.
)

// unlabelled holds the kept fields of a content that has no node label yet.
type unlabelled struct {
	uid      types.UID
	version  string
	snapshot string // handle of the existing snapshot; "": the content is for a new one
	volume   string // handle of the volume to take a snapshot of; "": it is pre-provisioned
}

func newUnlabelledStore(changed func(name string)) *kubeclient.FilteredStore[unlabelled] {
	return &kubeclient.FilteredStore[unlabelled]{
		Key: kubeclient.KeyOfObject, Keep: keepUnlabelled, Strip: stripUnlabelled,
		Changed: func(name string, _ []unlabelled) { changed(name) },
	}
}

func keepUnlabelled(o any) (unlabelled, bool) {
	c, ok := o.(*kubeclient.Content)
	if !ok || c.Spec.Driver != api.DriverName {
		return unlabelled{}, false
	}
	kept := unlabelled{c.UID, c.ResourceVersion, c.Spec.Source.SnapshotHandle, c.Spec.Source.VolumeHandle}
	return kept, kept.snapshot != "" || kept.volume != ""
}

func stripUnlabelled(o any) any {
	if c, ok := o.(*kubeclient.Content); ok {
		kept := &kubeclient.Content{ObjectMeta: kubeclient.Names(c)}
		kept.Spec.Driver, kept.Spec.Source = c.Spec.Driver, c.Spec.Source
		return kept
	}
	return o
}

// watchUnlabelled watches the contents without a node label; most clusters have none for long. Without the snapshot API it
// polls for the API: a reflector would send a request, and log an error, twice a minute.
func (a *Agent) watchUnlabelled(ctx context.Context) {
	if a.unlabelled == nil {
		return
	}
	for ctx.Err() == nil && a.client.KnowsNoContents(ctx) {
		kubeclient.Sleep(ctx, wait.Jitter(a.kindAgain, 0.2))
	}
	kubeclient.Reflect(ctx, a.client.Snapshots, "volumesnapshotcontents", "!"+api.LabelManagedBy, &kubeclient.Content{}, a.unlabelled)
}

// jobForContent finds the job for a content without a node label.
func (a *Agent) jobForContent(name string) (job, bool) {
	c, there, _ := a.unlabelled.Find(name)
	return job{string(c.uid), func(ctx context.Context) (bool, error) { return a.labelContent(ctx, name, c) }}, there
}

// labelContent labels the content with this node's name if its snapshot, or the volume to take one of, is here.
func (a *Agent) labelContent(ctx context.Context, name string, c unlabelled) (tried bool, err error) {
	here, err := a.hasSourceOf(ctx, c)
	if err == nil && !here {
		a.queue.AddAfter(kubeclient.ObjectKey{Kind: kubeclient.KindContent, Key: name}, unlabelledInterval)
	}
	if err != nil || !here {
		return false, err
	}
	body := map[string]any{"metadata": map[string]any{"resourceVersion": c.version, "labels": map[string]any{api.LabelManagedBy: a.node}}}
	err = kubeclient.PatchBy(ctx, a.client.Snapshots, "volumesnapshotcontents", "", name, "", body, &kubeclient.Content{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true, nil // the watch brings the new version
	}
	if err != nil {
		return true, fmt.Errorf("cannot label VolumeSnapshotContent %s, whose source %s is on this node: %w", name, cmp.Or(c.snapshot, c.volume), err)
	}
	a.log.InfoContext(ctx, "labelled a VolumeSnapshotContent whose source is on this node", "content", name, "snapshot", c.snapshot, "volume", c.volume)
	return true, nil
}

// hasSourceOf reports whether the content's snapshot, or the volume to take one of, is on this node's disks.
func (a *Agent) hasSourceOf(ctx context.Context, c unlabelled) (bool, error) {
	if c.snapshot != "" {
		return a.hasSnapshot(ctx, c.snapshot)
	}
	id, err := lvm.ParseID(c.volume)
	if err == nil {
		_, err = a.volumes.Lookup(ctx, id)
	}
	if lvm.KindOf(err) == lvm.KindConflict { // it is here, in a state without snapshots: csi-snapshotter says so, and can end the deletion of the content
		return true, nil
	}
	return found(err)
}

// hasSnapshot reports whether the snapshot is on this node's disks.
func (a *Agent) hasSnapshot(ctx context.Context, handle string) (bool, error) {
	id, err := lvm.ParseID(handle)
	if err == nil {
		_, err = a.volumes.LookupSnapshot(ctx, id)
	}
	return found(err)
}

// newContentStore keeps this node's contents with a ready snapshot. The API server selects the contents by label: those of other
// nodes never arrive. Several may name one VolumeSnapshot, since a retained content outlives it.
func newContentStore(changed func(snapshot string)) *kubeclient.FilteredStore[*kubeclient.Content] {
	return &kubeclient.FilteredStore[*kubeclient.Content]{
		Key: kubeclient.KeyOfObject,
		Keep: func(o any) (*kubeclient.Content, bool) {
			c, ok := o.(*kubeclient.Content)
			return c, ok && c.Spec.Driver == api.DriverName && c.Status.ReadyToUse && c.Status.SnapshotHandle != ""
		},
		Strip: func(o any) any {
			if c, ok := o.(*kubeclient.Content); ok {
				labels, annotations := kubeclient.Only(c.Labels, api.LabelManagedBy), kubeclient.Only(c.Annotations, api.AnnotationCopyOffer)
				c.ObjectMeta = kubeclient.Names(c)
				c.Labels, c.Annotations = labels, annotations
			}
			return o
		},
		Changed: func(_ string, versions []*kubeclient.Content) {
			for _, c := range versions {
				changed(c.SnapshotKey())
			}
		},
	}
}
