package janitor

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// JanitorConfig configures a Janitor.
type JanitorConfig struct {
	Client    *kubeclient.Client
	Namespace string                  // of its lease
	Holder    string                  // its identity in the lease: the pod's name
	Grace     time.Duration           // how long a node or a group must have been lost before the janitor deletes an object
	LeaseLife time.Duration           // 0: 15 s
	Beside    []func(context.Context) // run while this janitor holds the lease
	Log       *slog.Logger            // nil: slog.Default()
}

// Janitor cleans up after lost nodes. It writes events on the claims of lost volumes, and releases those whose storage class
// allows it (api.AnnotationOnNodeLoss), so that a StatefulSet starts with an empty volume on another node. Only the janitor may
// write other nodes' objects. One janitor of a cluster is active, under its own service account, and only where an admin
// installed it.
//
// An idle Janitor costs one watch each on nodes, volumes, claims and snapshot contents, and the renewals of its lease; what runs beside
// it has its own watches. It keeps only names in memory, and reads an object from the API server before it decides on it.
type Janitor struct {
	client *kubeclient.Client
	cfg    JanitorConfig
	log    *slog.Logger
	events *kubeclient.EventRecorder
	losses losses
}

// NewJanitor creates a Janitor without sending a request.
func NewJanitor(cfg JanitorConfig) *Janitor {
	return &Janitor{
		client: cfg.Client, cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()),
		events: &kubeclient.EventRecorder{Client: cfg.Client, Counts: map[string]kubeclient.EventCount{}},
	}
}

// leaseName is the name of the janitor's lease.
const leaseName = "nodelvm-janitor"

// Run works until ctx ends, whenever this process holds the lease.
func (j *Janitor) Run(ctx context.Context) {
	e := election{
		client: j.client, namespace: j.cfg.Namespace, name: leaseName, holder: j.cfg.Holder,
		lasts: cmp.Or(j.cfg.LeaseLife, 15*time.Second), losses: &j.losses, log: j.log,
	}
	e.run(ctx, func(ctx context.Context) { j.newRound().run(ctx) })
}

// janitorRound is a Janitor while it holds the lease: its watches and its queue.
type janitorRound struct {
	*Janitor
	began    time.Time
	nodes    *kubeclient.FilteredStore[lossKind] // by name: existing nodes, with their taint
	volumes  *kubeclient.FilteredStore[place]    // by name: this driver's
	claims   *kubeclient.FilteredStore[place]    // by namespace/name: unbound, with the selected node
	contents *kubeclient.FilteredStore[place]    // by name: this driver's
	queue    workqueue.TypedDelayingInterface[kubeclient.ObjectKey]
	backoff  *flowcontrol.Backoff
	deleted  map[string]bool // names of the volumes whose claims this janitor has deleted
}

// place is the node that has, or will have, an object's volume.
type place struct {
	node   string
	handle string // of a volume
	claim  string // of a volume: namespace/name in its claimRef
	alone  bool   // it has no annotation of a loss: while the node exists, the janitor has nothing to do
}

func (j *Janitor) newRound() *janitorRound {
	r := &janitorRound{
		Janitor: j, began: time.Now(), deleted: map[string]bool{}, queue: workqueue.NewTypedDelayingQueue[kubeclient.ObjectKey](),
		backoff: flowcontrol.NewBackOff(kubeclient.BackoffFirst, kubeclient.BackoffMost),
	}
	add := func(kind string) func(string, []place) {
		return func(key string, _ []place) { r.queue.Add(kubeclient.ObjectKey{Kind: kind, Key: key}) }
	}
	r.nodes = &kubeclient.FilteredStore[lossKind]{Key: kubeclient.KeyOfObject, Keep: keepNode, Strip: stripNode, Changed: r.nodeChanged}
	r.volumes = &kubeclient.FilteredStore[place]{Key: kubeclient.KeyOfObject, Keep: KeepVolume, Strip: StripVolume, Changed: r.volumeChanged}
	r.claims = &kubeclient.FilteredStore[place]{Key: kubeclient.KeyOfObject, Keep: KeepSelecting, Strip: StripSelecting, Changed: add(kubeclient.KindClaim)}
	r.contents = &kubeclient.FilteredStore[place]{Key: kubeclient.KeyOfObject, Keep: KeepContent, Strip: StripContent, Changed: add(kubeclient.KindContent)}
	return r
}

// nodeChanged queues everything on a node when the node disappears, returns, or is tainted.
func (r *janitorRound) nodeChanged(name string, versions []lossKind) {
	if len(versions) == 2 && versions[0] == versions[1] {
		return
	}
	if taint, here, _ := r.nodes.Find(name); here && taint == lossNone {
		r.losses.end(lossKey{node: name})
	}
	for kind, s := range map[string]*kubeclient.FilteredStore[place]{kubeclient.KindVolume: r.volumes, kubeclient.KindClaim: r.claims, kubeclient.KindContent: r.contents} {
		for _, key := range s.Keys(func(p place) bool { return p.node == name }) {
			r.queue.Add(kubeclient.ObjectKey{Kind: kind, Key: key})
		}
	}
}

// kindReturned is the kind in the queue of a volume that has no annotation of a loss any more.
const kindReturned = "returned " + kubeclient.KindVolume

// volumeChanged queues a volume. When its last annotation of a loss is removed, by its node's driver or by this janitor, the loss of its
// volume group ends.
func (r *janitorRound) volumeChanged(name string, versions []place) {
	if len(versions) == 2 && !versions[0].alone && versions[1].alone {
		vg, _, _ := strings.Cut(versions[1].handle, "/")
		r.losses.end(groupLossKey(versions[1].node, vg))
		r.queue.Add(kubeclient.ObjectKey{Kind: kindReturned, Key: name})
	}
	r.queue.Add(kubeclient.ObjectKey{Kind: kubeclient.KindVolume, Key: name})
}

func (r *janitorRound) run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { kubeclient.Reflect(ctx, r.client.Core, "nodes", "", &corev1.Node{}, r.nodes) })
	parts.Go(func() {
		kubeclient.Reflect(ctx, r.client.Core, "persistentvolumes", "", &corev1.PersistentVolume{}, r.volumes)
	})
	parts.Go(func() {
		kubeclient.Reflect(ctx, r.client.Core, "persistentvolumeclaims", "", &corev1.PersistentVolumeClaim{}, r.claims)
	})
	parts.Go(func() { r.watchContents(ctx) })
	for _, part := range r.cfg.Beside {
		parts.Go(func() { part(ctx) })
	}
	parts.Go(func() { r.losses.pruneRegularly(ctx, r.lasting) })
	parts.Go(func() {
		for r.next(ctx) {
		}
	})
	<-ctx.Done()
	r.queue.ShutDown()
	parts.Wait()
}

// watchContents watches the contents of snapshots, if the cluster has the snapshot API. The janitor detects a later installation after a
// restart. Until the API server answers, the janitor releases no snapshots; it does not wait with the rest.
func (r *janitorRound) watchContents(ctx context.Context) {
	for ; ctx.Err() == nil; kubeclient.Sleep(ctx, kubeclient.BackoffMost) {
		err := r.client.Snapshots.Get().Resource("volumesnapshotcontents").Param("limit", "1").Do(ctx).Error()
		switch {
		case err == nil:
			kubeclient.Reflect(ctx, r.client.Snapshots, "volumesnapshotcontents", api.LabelManagedBy, &kubeclient.Content{}, r.contents)
		case apierrors.IsNotFound(err):
			_ = r.contents.Replace(nil, "") // there are none; this store returns no errors
			return
		case ctx.Err() == nil:
			r.log.WarnContext(ctx, "cannot determine whether this cluster has snapshots; retrying", "error", err)
		}
	}
}

// next does one step for one object. It returns false when the queue has been shut down.
func (r *janitorRound) next(ctx context.Context) bool {
	object, ended := r.queue.Get()
	if ended {
		return false
	}
	defer r.queue.Done(object)
	again, err := r.check(ctx, object)
	id := object.String()
	switch {
	case ctx.Err() != nil:
	case kubeclient.UnlessConflict(err) != nil:
		r.backoff.Next(id, time.Now())
		again = r.backoff.Get(id)
		r.log.WarnContext(ctx, "failed; will retry", "object", id, "in", again, "error", err)
	case err != nil:
		again = kubeclient.BackoffFirst // another client has changed it: decide again
	default:
		r.backoff.DeleteEntry(id)
	}
	if again > 0 {
		r.queue.AddAfter(object, again)
	}
	return true
}

// check does the next step for an object, and returns when to check again; 0: when the watch brings a change.
func (r *janitorRound) check(ctx context.Context, object kubeclient.ObjectKey) (time.Duration, error) {
	var s *kubeclient.FilteredStore[place]
	var do func(context.Context, string, string) (time.Duration, error)
	switch object.Kind {
	case kubeclient.KindVolume:
		s, do = r.volumes, r.checkVolume
	case kindReturned:
		s, do = r.volumes, r.checkReturned
	case kubeclient.KindClaim:
		s, do = r.claims, r.checkClaim
	default:
		s, do = r.contents, r.checkContent
	}
	p, there, _ := s.Find(object.Key)
	if !there {
		return 0, nil
	}
	taint, here, known := r.nodes.Find(p.node)
	switch {
	case !known:
		return kubeclient.BackoffFirst, nil // the nodes have not been listed yet: none counts as lost
	case here && taint == lossNone && p.alone && object.Kind != kindReturned:
		return 0, nil
	}
	return do(ctx, object.Key, p.node)
}
