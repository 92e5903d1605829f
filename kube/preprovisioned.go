package kube

import (
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

// The snapshot controller labels the contents that it creates with their node. A pre-provisioned content, which an admin
// creates for an existing snapshot, has no label, and every csi-snapshotter ignores it: so the node that has the snapshot
// sets the label.

const (
	preProvisionedInterval = time.Minute     // No event announces a disk that appears later; a check sends no request to the API server.
	kindAgain              = 5 * time.Minute // Interval of the check whether a cluster has gained the snapshot API.
)

// preProvisioned holds the kept fields of a pre-provisioned content that has no node label yet.
type preProvisioned struct {
	uid     types.UID
	version string
	handle  string
}

func newPreProvisionedStore(changed func(name string)) *kubeclient.FilteredStore[preProvisioned] {
	return &kubeclient.FilteredStore[preProvisioned]{
		Key: kubeclient.KeyOfObject, Keep: keepPreProvisioned, Strip: stripPreProvisioned,
		Changed: func(name string, _ []preProvisioned) { changed(name) },
	}
}

func keepPreProvisioned(o any) (preProvisioned, bool) {
	c, ok := o.(*kubeclient.Content)
	if !ok || c.Spec.Driver != api.DriverName {
		return preProvisioned{}, false
	}
	return preProvisioned{c.UID, c.ResourceVersion, c.Spec.Source.SnapshotHandle}, c.Spec.Source.SnapshotHandle != ""
}

func stripPreProvisioned(o any) any {
	if c, ok := o.(*kubeclient.Content); ok {
		kept := &kubeclient.Content{ObjectMeta: kubeclient.Names(c)}
		kept.Spec.Driver, kept.Spec.Source = c.Spec.Driver, c.Spec.Source
		return kept
	}
	return o
}

// watchPreProvisioned watches the contents without a node label; nearly all clusters have none. Without the snapshot API it
// polls for the API: a reflector would send a request, and log an error, twice a minute.
func (a *Agent) watchPreProvisioned(ctx context.Context) {
	if a.preProvisioned == nil {
		return
	}
	for ctx.Err() == nil && a.client.KnowsNoContents(ctx) {
		kubeclient.Sleep(ctx, wait.Jitter(a.kindAgain, 0.2))
	}
	kubeclient.Reflect(ctx, a.client.Snapshots, "volumesnapshotcontents", "!"+api.LabelManagedBy, &kubeclient.Content{}, a.preProvisioned)
}

// jobForContent finds the job for a pre-provisioned content.
func (a *Agent) jobForContent(name string) (job, bool) {
	c, there, _ := a.preProvisioned.Find(name)
	return job{string(c.uid), func(ctx context.Context) (bool, error) { return a.labelContent(ctx, name, c) }}, there
}

// labelContent labels the content with this node's name if its snapshot is here.
func (a *Agent) labelContent(ctx context.Context, name string, c preProvisioned) (tried bool, err error) {
	here, err := a.hasSnapshot(ctx, c.handle)
	if err == nil && !here {
		a.queue.AddAfter(kubeclient.ObjectKey{Kind: kubeclient.KindContent, Key: name}, preProvisionedInterval)
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
		return true, fmt.Errorf("cannot label VolumeSnapshotContent %s, whose snapshot %s is on this node: %w", name, c.handle, err)
	}
	a.log.InfoContext(ctx, "labelled a pre-provisioned VolumeSnapshotContent whose snapshot is on this node", "content", name, "snapshot", c.handle)
	return true, nil
}

// hasSnapshot reports whether the snapshot is on this node's disks.
func (a *Agent) hasSnapshot(ctx context.Context, handle string) (bool, error) {
	id, err := lvm.ParseID(handle)
	if err == nil {
		_, err = a.volumes.LookupSnapshot(ctx, id)
	}
	return found(err)
}
