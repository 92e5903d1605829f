package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
)

// JanitorConfig says how a Janitor works.
type JanitorConfig struct {
	Client    *Client
	Namespace string        // where its lease is
	Holder    string        // its name in the lease: the pod's
	Grace     time.Duration // how long a node or a group must have been lost before anything is deleted
	LeaseLife time.Duration // 0: 15 s
	Log       *slog.Logger  // nil: slog.Default()
}

// Janitor clears up after lost nodes: it tells the claims whose volume was there, and releases those whose storage class
// says so (OnNodeLoss), so that a StatefulSet starts afresh elsewhere. It alone may write other nodes' objects; it runs
// once in a cluster, under an account of its own, and only where it was installed.
//
// Idle, it costs a watch each on nodes, volumes, claims and snapshot contents. What is kept of them in memory are names;
// what is decided on is read from the API server each time.
type Janitor struct {
	client *Client
	cfg    JanitorConfig
	log    *slog.Logger
	events *teller
	losses losses
}

// NewJanitor makes a Janitor; it sends no request.
func NewJanitor(cfg JanitorConfig) *Janitor {
	return &Janitor{
		client: cfg.Client, cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()),
		events: &teller{client: cfg.Client, told: map[string]telling{}},
	}
}

// leaseName is the name of the janitor's lease.
const leaseName = "nodelvm-janitor"

// Run works until ctx ends, whenever it is this process's turn.
func (j *Janitor) Run(ctx context.Context) {
	e := election{
		client: j.client, namespace: j.cfg.Namespace, name: leaseName, holder: j.cfg.Holder,
		lasts: cmp.Or(j.cfg.LeaseLife, 15*time.Second), losses: &j.losses, log: j.log,
	}
	e.run(ctx, func(ctx context.Context) { j.newRound().run(ctx) })
}

// janitorRound is a Janitor while it is elected: what the watches bring, and what there is to do.
type janitorRound struct {
	*Janitor
	began    time.Time
	nodes    *shelf[lossKind] // by name: those that are there, with their taint
	volumes  *shelf[place]    // by name: this driver's
	claims   *shelf[place]    // by namespace/name: unbound, with the node that was selected
	contents *shelf[place]    // by name: this driver's
	queue    workqueue.TypedDelayingInterface[work]
	backoff  *flowcontrol.Backoff
}

// place is where an object's volume is, or is to be made.
type place struct {
	node   string
	handle string // of a volume
	alone  bool   // nothing is noted of a loss: as long as the node is there, nothing is to be done
}

// work names an object to be looked at.
type work struct{ kind, key string }

const (
	kindVolume  = "PersistentVolume"
	kindContent = "VolumeSnapshotContent"
)

func (j *Janitor) newRound() *janitorRound {
	r := &janitorRound{
		Janitor: j, began: time.Now(), queue: workqueue.NewTypedDelayingQueue[work](),
		backoff: flowcontrol.NewBackOff(backoffFirst, backoffMost),
	}
	add := func(kind string) func(string, []place) {
		return func(key string, _ []place) { r.queue.Add(work{kind, key}) }
	}
	r.nodes = &shelf[lossKind]{key: keyOfObject, keep: keepNode, strip: stripNode, changed: r.nodeChanged}
	r.volumes = &shelf[place]{key: keyOfObject, keep: keepVolume, strip: stripVolume, changed: add(kindVolume)}
	r.claims = &shelf[place]{key: keyOfObject, keep: keepSelecting, strip: stripSelecting, changed: add(kindClaim)}
	r.contents = &shelf[place]{key: keyOfObject, keep: keepContent, strip: stripContent, changed: add(kindContent)}
	return r
}

// nodeChanged has everything on a node looked at when it goes, comes back, or is tainted.
func (r *janitorRound) nodeChanged(name string, versions []lossKind) {
	if len(versions) == 2 && versions[0] == versions[1] {
		return
	}
	if taint, here, _ := r.nodes.find(name); here && taint == lossNone {
		r.losses.ended(name)
	}
	for kind, s := range map[string]*shelf[place]{kindVolume: r.volumes, kindClaim: r.claims, kindContent: r.contents} {
		for _, key := range s.keys(func(p place) bool { return p.node == name }) {
			r.queue.Add(work{kind, key})
		}
	}
}

func (r *janitorRound) run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { reflect(ctx, r.client.core, "nodes", "", &corev1.Node{}, r.nodes) })
	parts.Go(func() { reflect(ctx, r.client.core, "persistentvolumes", "", &corev1.PersistentVolume{}, r.volumes) })
	parts.Go(func() {
		reflect(ctx, r.client.core, "persistentvolumeclaims", "", &corev1.PersistentVolumeClaim{}, r.claims)
	})
	if r.hasSnapshots(ctx) {
		parts.Go(func() {
			reflect(ctx, r.client.snapshots, "volumesnapshotcontents", labelManagedBy, &content{}, r.contents)
		})
	}
	parts.Go(func() {
		for r.next(ctx) {
		}
	})
	<-ctx.Done()
	r.queue.ShutDown()
	parts.Wait()
}

// hasSnapshots tells whether the cluster has the snapshot API. Where it comes later, the janitor sees it after a restart.
func (r *janitorRound) hasSnapshots(ctx context.Context) bool {
	for ctx.Err() == nil {
		err := r.client.snapshots.Get().Resource("volumesnapshotcontents").Param("limit", "1").Do(ctx).Error()
		if err == nil || apierrors.IsNotFound(err) {
			return err == nil
		}
		r.log.WarnContext(ctx, "cannot determine whether this cluster has snapshots; retrying", "error", err)
		sleep(ctx, backoffMost)
	}
	return false
}

// next does one step about one object. It answers false when the queue has ended.
func (r *janitorRound) next(ctx context.Context) bool {
	w, ended := r.queue.Get()
	if ended {
		return false
	}
	defer r.queue.Done(w)
	again, err := r.look(ctx, w)
	id := w.kind + " " + w.key
	switch {
	case ctx.Err() != nil:
	case unlessConflict(err) != nil:
		r.backoff.Next(id, time.Now())
		again = r.backoff.Get(id)
		r.log.WarnContext(ctx, "failed; will retry", "object", id, "in", again, "error", err)
	case err != nil:
		again = backoffFirst // somebody else has changed it: it is decided anew
	default:
		r.backoff.DeleteEntry(id)
	}
	if again > 0 {
		r.queue.AddAfter(w, again)
	}
	return true
}

// look does the next step about an object, and answers when to look again; 0: when the watch brings something.
func (r *janitorRound) look(ctx context.Context, w work) (time.Duration, error) {
	var s *shelf[place]
	var do func(context.Context, string, string) (time.Duration, error)
	switch w.kind {
	case kindVolume:
		s, do = r.volumes, r.lookAtVolume
	case kindClaim:
		s, do = r.claims, r.lookAtClaim
	default:
		s, do = r.contents, r.lookAtContent
	}
	p, there, _ := s.find(w.key)
	if !there {
		return 0, nil
	}
	taint, here, known := r.nodes.find(p.node)
	switch {
	case !known:
		return backoffFirst, nil // the nodes have not been listed yet: none is known to be gone
	case here && taint == lossNone && p.alone:
		return 0, nil
	}
	return do(ctx, w.key, p.node)
}

// node reads a Node object; nil: there is none.
func (c *Client) node(ctx context.Context, name string) (*corev1.Node, error) {
	var node corev1.Node
	there, err := get(ctx, c.core, "nodes", "", name, &node)
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	if !there {
		return nil, nil
	}
	return &node, nil
}
