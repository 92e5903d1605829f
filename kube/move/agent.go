package move

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

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// How soon an agent decides again: on moves that began to wait a moment ago, on those that wait for long, and on former copies. No watch shows the
// agent a PersistentVolume.
const (
	lookSoon  = 500 * time.Millisecond
	lookLater = 10 * time.Second
	lookRound = time.Minute

	lookTogether = 100 * time.Millisecond // changes of claims that come together, as of the claims of a pod, cost one round

	lookRefused = 10 * time.Minute // at most: a tenant may annotate any number of claims
)

// Bounds of one round over the claims of a namespace.
const (
	workers  = 4
	maxSteps = 64
	timeout  = 2 * time.Minute
)

// Grace is the default time for which a pod must have used a volume on its new node before the former copy is deleted.
const Grace = 24 * time.Hour

// Config configures an Agent.
type Config struct {
	Client *kubeclient.Client
	Engine Engine
	Node   string        // this node's name, and its topology value
	Grace  time.Duration // 0: Grace
	Log    *slog.Logger  // nil: slog.Default()
}

// Agent moves volumes to and from this node. An idle one sends no request.
type Agent struct {
	objects Objects
	engine  Engine
	events  *kubeclient.EventRecorder // nil in tests of the decisions
	review  reviewer
	node    string
	grace   time.Duration
	log     *slog.Logger
	now     func() time.Time
	queue   workqueue.TypedDelayingInterface[string] // namespaces: the claims of a pod are in one

	mu       sync.Mutex
	asked    map[string]bool      // by namespace/name: claims whose annotation may concern this node
	progress map[string]Progress  // by name of the PersistentVolume
	reported map[string]reported  // by namespace/name
	alone    map[string]alone     // by name of the PersistentVolume
	refusals *flowcontrol.Backoff // by namespace/name: of claims whose move cannot begin
	paces    map[string]pace      // by unit.key: of moves that wait
}

// reported is what the claim's status says.
type reported struct {
	phase, text string
	when        time.Time
}

// New creates an Agent without sending a request.
func New(cfg Config) *Agent {
	a := &Agent{
		engine: cfg.Engine, node: cfg.Node, grace: cmp.Or(cfg.Grace, Grace), log: cmp.Or(cfg.Log, slog.Default()), now: time.Now,
		queue: workqueue.NewTypedDelayingQueue[string](),
		asked: map[string]bool{}, progress: map[string]Progress{}, reported: map[string]reported{}, alone: map[string]alone{}, paces: map[string]pace{},
		refusals: flowcontrol.NewBackOff(lookLater, lookRefused),
	}
	if cfg.Client != nil {
		a.objects = newPaced(server{cfg.Client})
		a.review = cfg.Client.ReviewPeer
		a.events = &kubeclient.EventRecorder{Client: cfg.Client, Node: cfg.Node, Counts: map[string]kubeclient.EventCount{}}
	}
	return a
}

// Observe takes note of a claim, as the agent's watch brings each one, with its annotations. It sends no request, and keeps only claims that ask for
// a move which may concern this node.
func (a *Agent) Observe(claim *corev1.PersistentVolumeClaim, deleted bool) {
	key := kubeclient.KeyOf(claim)
	to, selected := claim.Annotations[api.AnnotationMoveTo], claim.Annotations[api.AnnotationSelectedNode]
	concerns := !deleted && to != "" && claim.Spec.VolumeName != "" && (to == a.node || selected == "" || selected == a.node)
	a.mu.Lock()
	before := a.asked[key]
	if concerns {
		a.asked[key] = true
	} else {
		delete(a.asked, key)
	}
	a.retrySoon(claim.Namespace)
	a.readSoon(claim.Namespace)
	a.mu.Unlock()
	if concerns || before || claim.Annotations[api.AnnotationMoveFinish] == a.node {
		a.queue.AddAfter(claim.Namespace, lookTogether)
	}
	if before && !concerns {
		a.queue.Add("") // what was received for it may have no record yet
	}
}

// retrySoon ends the back-off of a namespace's claims: the change of one may be what another waits for. Among very many claims each waits for its own
// time. The caller holds the lock.
func (a *Agent) retrySoon(namespace string) {
	const few = 100
	if len(a.asked) > few {
		return
	}
	for key := range a.asked {
		if ns, _ := kubeclient.ClaimKey(key); ns == namespace {
			a.refusals.Reset(key)
		}
	}
}

// Run works until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	var work sync.WaitGroup
	for range workers {
		work.Go(func() {
			for {
				namespace, ended := a.queue.Get()
				if ended {
					return
				}
				again := a.round(ctx, namespace)
				a.queue.Done(namespace)
				if again > 0 {
					a.queue.AddAfter(namespace, again)
				}
			}
		})
	}
	a.lookAround(ctx)
	ticker := time.NewTicker(lookRound)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			a.lookAround(ctx)
		case <-ctx.Done():
			a.queue.ShutDown()
			work.Wait()
			return
		}
	}
}

// lookAround queues the namespaces of the moves that are in the tags of this node's volumes.
func (a *Agent) lookAround(ctx context.Context) {
	a.refusals.GC() // of claims that are deleted
	if err := a.engine.DropUnneeded(ctx); err != nil {
		a.log.WarnContext(ctx, "cannot remove the snapshots that no move needs, or for which a pool is too full", "error", err)
	}
	locals, err := a.engine.Volumes(ctx)
	if err != nil {
		a.log.WarnContext(ctx, "cannot list the volumes that move", "error", err)
		return
	}
	for i := range locals {
		if u, ok := unitOf(&locals[i]); ok {
			a.queue.Add(u.namespace)
		}
	}
}

// unit is one claim, or what was one.
type unit struct {
	namespace, claim string // "": the PersistentVolume has it
	volume           string // name of the PersistentVolume; "": the claim has it
}

// unitOf returns the claim of a volume that moves; false: it does not.
func unitOf(l *Local) (unit, bool) {
	if r := parseRecord(l.Record); r != nil {
		return unit{r.Namespace, r.Claim, r.name()}, true
	}
	if l.State == lvm.StateReady || l.State == lvm.StateDeleting {
		return unit{}, false
	}
	return unit{volume: l.Name}, true // received a moment ago
}

// units are the claims of a namespace to decide on.
func (a *Agent) units(ctx context.Context, namespace string) (list []unit, err error) {
	locals, err := a.engine.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for i := range locals {
		if u, ok := unitOf(&locals[i]); ok && u.namespace == namespace {
			list = append(list, u)
			seen[u.claim] = true
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.asked {
		if ns, name := kubeclient.ClaimKey(key); ns == namespace && !seen[name] {
			list = append(list, unit{namespace: ns, claim: name})
		}
	}
	return list, nil
}

// round does what there is to do for the claims of a namespace, and returns when to look again; 0: when something is observed.
func (a *Agent) round(ctx context.Context, namespace string) (again time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	units, err := a.units(ctx, namespace)
	if err != nil {
		a.log.WarnContext(ctx, "cannot list the volumes that move", "error", err)
		return lookLater
	}
	for _, u := range units {
		key := u.namespace + "/" + u.claim
		if a.refusals.IsInBackOffSinceUpdate(key, a.now()) && u.volume == "" {
			if again == 0 {
				again = lookLater
			}
			continue
		}
		next := a.early(u)
		if next == 0 {
			next = a.advance(ctx, u)
		}
		if next > 0 && (again == 0 || next < again) {
			again = next
		}
	}
	return again
}

// advance takes the steps of one claim until it waits.
func (a *Agent) advance(ctx context.Context, u unit) (again time.Duration) {
	for range maxSteps {
		done, err := a.one(ctx, u)
		switch {
		case ctx.Err() != nil:
			return lookLater // perhaps this round's time is over
		case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
			return lookSoon
		case err != nil:
			a.log.WarnContext(ctx, "a step of a move failed; will retry", "claim", u.namespace+"/"+u.claim, "step", string(done.do), "error", err)
			return lookLater
		case done.do == wait && done.phase == "":
			a.forgetPace(u)
			return 0
		case done.do == wait && done.phase == api.MoveWaiting:
			a.forgetPace(u)
			a.refusals.Next(u.namespace+"/"+u.claim, a.now())
			return lookLater
		case done.do == wait && done.phase == api.MoveMoved:
			return lookLater
		case done.do == wait || done.do == receive:
			return a.rest(u, done)
		case done.do == poke:
			return lookSoon
		}
	}
	return lookSoon
}

// one reads, decides and takes one step.
func (a *Agent) one(ctx context.Context, u unit) (step, error) {
	v, err := a.gather(ctx, u)
	if err != nil {
		return step{}, err
	}
	if v.claim == nil && v.local == nil {
		a.mu.Lock()
		delete(a.asked, u.namespace+"/"+u.claim)
		a.mu.Unlock()
	}
	s := decide(v, a.grace)
	if s.do != wait {
		a.log.InfoContext(ctx, "step of a move", "claim", u.namespace+"/"+u.claim, "step", string(s.do))
	}
	a.tellSnapshots(ctx, v, s)
	err = a.take(ctx, v, s)
	if s.do == takeRound && err != nil && ctx.Err() == nil {
		a.copiesAlone(v.local.Name, err)
		return s, nil // decide again, without rounds
	}
	if s.do == hold && lvm.KindOf(err) == lvm.KindInUse { // the kubelet unmounts a volume after the end of its pod
		s, err = waiting(api.MoveStopping, err.Error()), nil
	}
	a.tell(ctx, v, s, err)
	if err != nil {
		return s, fmt.Errorf("cannot %s: %w", s.do, err)
	}
	return s, nil
}
