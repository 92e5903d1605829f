package groupsnapshot

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// Host is the part of host.Host that this package uses; see there for the results.
type Host interface {
	Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error)
	CreateGroupSnapshot(ctx context.Context, spec lvm.GroupSnapshotSpec, prepare func(context.Context, lvm.ID) (end func(), err error)) (lvm.GroupSnapshot, error)
	DeleteGroupSnapshot(ctx context.Context, id lvm.ID) error
	LookupGroupSnapshot(ctx context.Context, id lvm.ID) (lvm.GroupSnapshot, error)
}

// Config configures an Actor.
type Config struct {
	Client *kubeclient.Client
	Node   string // this node's name
	Host   Host   // this node's
	Sync   func(ctx context.Context, id lvm.ID) (end func(), err error)
	// NameThinClass adds the name of a thin class to the refusal of a group snapshot with a volume that is not thin (lvm.ErrThick);
	// nil: it adds nothing.
	NameThinClass func(err error) error
	Log           *slog.Logger // nil: slog.Default()
}

const (
	resource = "volumegroupsnapshotcontents"

	elsewhereInterval = time.Minute     // No event announces a disk that appears later; a check sends no request to the API server.
	kindAgain         = 5 * time.Minute // interval of the check whether a cluster has gained the API of group snapshots

	backoffFirst = time.Second
	backoffMost  = 5 * time.Minute // a stall of each attempt is felt
)

// Actor acts for one node's group snapshots. An idle Actor costs two watches; none while the cluster has no such API.
type Actor struct {
	Config
	queue   workqueue.TypedDelayingInterface[item]
	backoff *flowcontrol.Backoff               // by the content's UID
	own     *kubeclient.FilteredStore[content] // with this node's label
	free    *kubeclient.FilteredStore[content] // without a label
}

// New creates an Actor without sending a request.
func New(cfg Config) *Actor {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.NameThinClass == nil {
		cfg.NameThinClass = func(err error) error { return err }
	}
	a := &Actor{Config: cfg, queue: newQueue(), backoff: flowcontrol.NewBackOff(backoffFirst, backoffMost)}
	store := func() *kubeclient.FilteredStore[content] {
		return &kubeclient.FilteredStore[content]{
			Key: kubeclient.KeyOfObject, Keep: keep, Strip: strip, Changed: func(_ string, versions []content) { a.queue.Add(versions[len(versions)-1].item()) },
		}
	}
	a.own, a.free = store(), store()
	return a
}

// Run works until ctx ends. One content at a time: a group snapshot locks its volume groups anyway.
func (a *Actor) Run(ctx context.Context) {
	for ctx.Err() == nil && a.knowsNoGroups(ctx) {
		kubeclient.Sleep(ctx, wait.Jitter(kindAgain, 0.2))
	}
	var work sync.WaitGroup
	for labels, store := range map[string]*kubeclient.FilteredStore[content]{api.LabelManagedBy + "=" + a.Node: a.own, "!" + api.LabelManagedBy: a.free} {
		work.Go(func() {
			kubeclient.Reflect(ctx, a.Client.GroupSnapshots, resource, labels, &kubeclient.GroupContent{}, store)
		})
	}
	work.Go(func() {
		for a.nextContent(ctx) {
		}
	})
	<-ctx.Done()
	a.queue.ShutDown()
	work.Wait()
}

// knowsNoGroups reports whether the API server lacks the API of group snapshots.
func (a *Actor) knowsNoGroups(ctx context.Context) bool {
	return apierrors.IsNotFound(a.Client.GroupSnapshots.Get().Resource(resource).Param("limit", "1").Do(ctx).Error())
}

// nextContent does what one content needs next. It returns false when the queue has been shut down.
func (a *Actor) nextContent(ctx context.Context) bool {
	next, ended := a.queue.Get()
	if ended {
		return false
	}
	defer a.queue.Done(next)
	c, there, _ := a.own.Find(next.name)
	if !there {
		if c, there, _ = a.free.Find(next.name); !there {
			a.backoff.GC() // nothing else forgets the failures of contents that are gone
			return true
		}
	}
	if a.backoff.IsInBackOffSinceUpdate(c.uid, time.Now()) {
		a.queue.AddAfter(next, a.backoff.Get(c.uid))
		return true
	}
	err := a.act(ctx, c)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		a.backoff.Reset(c.uid) // the watch brings the new version
		return true
	}
	if ctx.Err() == nil {
		a.backoff.Next(c.uid, time.Now())
		a.queue.AddAfter(next, a.backoff.Get(c.uid))
		a.Log.WarnContext(ctx, "failed; will retry", "content", next.name, "in", a.backoff.Get(c.uid), "error", err)
	}
	return true
}

// act does the next action for a content. The watch brings the result, and with it the one after that.
func (a *Actor) act(ctx context.Context, c content) error {
	switch c.next(a.Node) {
	case takeLabel:
		return a.label(ctx, c)
	case take:
		return a.take(ctx, c)
	case adopt:
		return a.adopt(ctx, c)
	case unmark:
		return a.patch(ctx, c, "", metadata(c, map[string]any{"annotations": map[string]any{api.AnnotationGroupBeingCreated: nil}}))
	case remove:
		return a.remove(ctx, c)
	case release:
		return a.release(ctx, c)
	case nothing:
	}
	return nil
}

// metadata is a patch of a content's metadata, which fails if the content has changed.
func metadata(c content, fields map[string]any) map[string]any {
	fields["resourceVersion"] = c.version
	return map[string]any{"metadata": fields}
}

func (a *Actor) patch(ctx context.Context, c content, subresource string, body map[string]any) error {
	if err := kubeclient.PatchBy(ctx, a.Client.GroupSnapshots, resource, "", c.name, subresource, body, &kubeclient.GroupContent{}); err != nil {
		return fmt.Errorf("cannot change %s %s: %w", kubeclient.KindGroupContent, c.name, err)
	}
	return nil
}
