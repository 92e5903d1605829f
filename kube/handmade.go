package kube

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodelvm/nodelvm/lvm"
)

// The snapshot controller labels the contents that it makes itself with the node that they are on. One that somebody made
// by hand, for a snapshot that is there already, has no label, and no csi-snapshotter looks at it: so the node that has the
// snapshot sets it.

const (
	contentPrefix = "VolumeSnapshotContent/" // of a key in the queue: no namespace has capital letters
	handmadeAgain = time.Minute              // a disk that comes later wakes nobody; a look asks nothing of the API server
	kindAgain     = 5 * time.Minute          // how often a cluster without snapshots is asked whether it has got them
)

// handmade is what is kept of a content that somebody made by hand, and that no node has labelled yet.
type handmade struct {
	uid     types.UID
	version string
	handle  string
}

func newHandmadeStore(changed func(name string)) *shelf[handmade] {
	return &shelf[handmade]{
		key: keyOfObject, keep: keepHandmade, strip: stripHandmade,
		changed: func(name string, _ []handmade) { changed(name) },
	}
}

func keepHandmade(o any) (handmade, bool) {
	c, ok := o.(*content)
	if !ok || c.Spec.Driver != DriverName {
		return handmade{}, false
	}
	return handmade{c.UID, c.ResourceVersion, c.Spec.Source.SnapshotHandle}, c.Spec.Source.SnapshotHandle != ""
}

func stripHandmade(o any) any {
	if c, ok := o.(*content); ok {
		kept := &content{ObjectMeta: names(c)}
		kept.Spec.Driver, kept.Spec.Source = c.Spec.Driver, c.Spec.Source
		return kept
	}
	return o
}

// watchHandmade watches the contents that no node has labelled, in nearly all clusters none at all. Where the cluster does
// not know the kind it waits: a reflector would ask, and complain, twice a minute.
func (a *Agent) watchHandmade(ctx context.Context) {
	if a.handmade == nil {
		return
	}
	for ctx.Err() == nil && a.client.knowsNoContents(ctx) {
		sleep(ctx, wait.Jitter(a.kindAgain, 0.2))
	}
	reflect(ctx, a.client.snapshots, "volumesnapshotcontents", "!"+labelManagedBy, &content{}, a.handmade)
}

// knowsNoContents tells whether the API server has said that there is no such kind. Other trouble is the reflector's.
func (c *Client) knowsNoContents(ctx context.Context) bool {
	return apierrors.IsNotFound(c.snapshots.Get().Resource("volumesnapshotcontents").Param("limit", "1").Do(ctx).Error())
}

// jobForContent finds what there is to do about a content that was made by hand.
func (a *Agent) jobForContent(name string) (job, bool) {
	c, there, _ := a.handmade.find(name)
	return job{string(c.uid), func(ctx context.Context) (bool, error) { return a.take(ctx, name, c) }}, there
}

// take labels the content with this node's name if its snapshot is here.
func (a *Agent) take(ctx context.Context, name string, c handmade) (tried bool, err error) {
	here, err := a.hasSnapshot(ctx, c.handle)
	if err == nil && !here {
		a.queue.AddAfter(contentPrefix+name, handmadeAgain)
	}
	if err != nil || !here {
		return false, err
	}
	body := map[string]any{"metadata": map[string]any{"resourceVersion": c.version, "labels": map[string]any{labelManagedBy: a.node}}}
	err = patchBy(ctx, a.client.snapshots, "volumesnapshotcontents", "", name, "", body, &content{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true, nil // the watch tells what has become of it
	}
	if err != nil {
		return true, fmt.Errorf("VolumeSnapshotContent %s cannot be labelled as this node's, which has its snapshot %s: %w", name, c.handle, err)
	}
	a.log.InfoContext(ctx, "labelled a pre-provisioned VolumeSnapshotContent whose snapshot is on this node", "content", name, "snapshot", c.handle)
	return true, nil
}

// hasSnapshot tells whether the snapshot is on this node's disks.
func (a *Agent) hasSnapshot(ctx context.Context, handle string) (bool, error) {
	id, err := lvm.ParseID(handle)
	if err == nil {
		_, err = a.volumes.LookupSnapshot(ctx, id)
	}
	return found(err)
}
