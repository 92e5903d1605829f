package fullcopy

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/move"
)

// Engine copies; *move.Node implements it.
type Engine interface {
	Fetch(ctx context.Context, offer move.Offer, claim string, spec lvm.Spec) (move.Progress, error)
	Finish(ctx context.Context, id lvm.ID, uuid string) (lvm.Volume, error)
	Discard(ctx context.Context, id lvm.ID, uuid string) error
	Offer(sn lvm.Snapshot) move.Offer
	Key() string
}

// Volumes are this node's; *host.Host implements it.
type Volumes interface {
	FullCopies(ctx context.Context) ([]lvm.Volume, error)
	ReleaseSnapshots(ctx context.Context) error
	LookupSnapshot(ctx context.Context, id lvm.ID) (lvm.Snapshot, error)
	CloneSnapshots(ctx context.Context) ([]lvm.Snapshot, error)
	CreateSnapshot(ctx context.Context, spec lvm.SnapshotSpec) (lvm.Snapshot, error)
	DeleteSnapshot(ctx context.Context, id lvm.ID) error
}

// Config configures an Agent.
type Config struct {
	Client  *kubeclient.Client
	Engine  Engine
	Volumes Volumes
	Node    string                                                // this node's name, and its topology value
	Prepare func(context.Context, lvm.ID) (end func(), err error) // lifts what would delay the snapshot of a volume; nil: nothing does
	Log     *slog.Logger                                          // nil: slog.Default()
}

// Agent copies snapshots and volumes of other nodes to this one, and lets other nodes copy those of this one. An idle one sends no request.
type Agent struct {
	client  *kubeclient.Client
	engine  Engine
	volumes Volumes
	node    string
	prepare func(context.Context, lvm.ID) (end func(), err error)
	events  *kubeclient.EventRecorder
	log     *slog.Logger
	changed chan struct{} // waits
	asked   chan struct{} // clones

	mu     sync.Mutex
	waits  map[string]time.Time // by name: when Copy was last called for a volume that is not complete
	clones map[string]bool      // by namespace/name: claims on other nodes that are to be copied from a volume here
}

// New creates an Agent without sending a request.
func New(cfg Config) *Agent {
	return &Agent{
		client: cfg.Client, engine: cfg.Engine, volumes: cfg.Volumes, node: cfg.Node, prepare: cfg.Prepare, log: cmp.Or(cfg.Log, slog.Default()),
		events:  &kubeclient.EventRecorder{Client: cfg.Client, Node: cfg.Node, Counts: map[string]kubeclient.EventCount{}},
		changed: make(chan struct{}, 1), asked: make(chan struct{}, 1), waits: map[string]time.Time{}, clones: map[string]bool{},
	}
}

// How often Run looks for copies that ended, while one runs, and for those that nothing waits for.
const (
	lookSoon  = 2 * time.Second
	lookLater = time.Minute
)

// askedAgain is longer than csi-provisioner waits before it calls again (--retry-interval-max).
const askedAgain = 2 * time.Minute

// requestTime is the time limit of the API requests for one claim.
const requestTime = 10 * time.Second

// Run discards what claims no longer need, has csi-provisioner ask again for what is complete, and takes the snapshots of clones, until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	var clones sync.WaitGroup
	clones.Go(func() { a.runClones(ctx) })
	defer clones.Wait()
	if err := a.volumes.ReleaseSnapshots(ctx); err != nil {
		a.log.WarnContext(ctx, "cannot deactivate the snapshots that an earlier run copied from", "error", err)
	}
	for {
		a.look(ctx)
		again := lookLater
		if a.waiting() {
			again = lookSoon
		}
		select {
		case <-time.After(again):
		case <-a.changed:
			if kubeclient.Sleep(ctx, lookSoon); ctx.Err() != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (a *Agent) waiting() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waits) > 0
}

// noteWait notes that the caller of Copy waits for the end of a copy.
func (a *Agent) noteWait(name string) {
	a.mu.Lock()
	a.waits[name] = time.Now()
	a.mu.Unlock()
	poke(a.changed)
}

// poke wakes who waits for the channel, now or next.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// look goes through this node's copies that are not ready.
func (a *Agent) look(ctx context.Context) {
	copies, err := a.volumes.FullCopies(ctx)
	if err != nil {
		a.log.WarnContext(ctx, "cannot list the full copies on this node", "error", err)
		return
	}
	a.mu.Lock()
	maps.DeleteFunc(a.waits, func(name string, last time.Time) bool {
		return time.Since(last) > askedAgain || !slices.ContainsFunc(copies, func(v lvm.Volume) bool { return v.Name == name })
	})
	a.mu.Unlock()
	for i := range copies {
		if err := a.lookAt(ctx, copies[i]); err != nil {
			a.log.WarnContext(ctx, "cannot decide yet what becomes of a full copy", "volume", copies[i].ID.String(), "claim", copies[i].Claim, "error", err)
		}
	}
}

// lookAt discards a copy that no claim on this node waits for, or makes csi-provisioner ask for a complete one at once.
func (a *Agent) lookAt(ctx context.Context, v lvm.Volume) error {
	a.mu.Lock()
	_, waits := a.waits[v.Name]
	a.mu.Unlock()
	if waits && v.State != lvm.StateReceived {
		return nil // Copy reads the claim
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	claim, err := a.claimOf(ctx, v.Claim, v.Name)
	switch {
	case err != nil:
		return err
	case claim == nil:
		return a.discard(ctx, v, "no claim waits for it on this node")
	case !waits:
		return nil
	}
	a.mu.Lock()
	delete(a.waits, v.Name)
	a.mu.Unlock()
	_, err = a.client.PatchClaim(ctx, claim, "", kubeclient.Patch{Annotations: map[string]any{api.AnnotationRetriedAt: time.Now().UTC().Format(time.RFC3339)}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // csi-provisioner asks again by itself, a little later
	}
	return err
}

func (a *Agent) discard(ctx context.Context, v lvm.Volume, why string) error {
	if err := a.engine.Discard(ctx, v.ID, v.UUID); err != nil {
		return err
	}
	a.log.InfoContext(ctx, "discarded a full copy", "volume", v.ID.String(), "claim", v.Claim, "source", v.Source.String(), "because", why)
	return nil
}

// claimOf returns the claim of a volume if it waits for it on this node; nil: it does not. The name of the volume ends in the claim's UID.
func (a *Agent) claimOf(ctx context.Context, key, volume string) (*corev1.PersistentVolumeClaim, error) {
	namespace, name := kubeclient.ClaimKey(key)
	claim, err := a.client.Claim(ctx, namespace, name)
	if err != nil || claim == nil || api.PrefixVolume+string(claim.UID) != volume || !waitsOn(claim, a.node) {
		return nil, err
	}
	return claim, nil
}

// waitsOn reports whether a claim waits for a volume on a node.
func waitsOn(claim *corev1.PersistentVolumeClaim, node string) bool {
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" && node != "" && claim.Annotations[api.AnnotationSelectedNode] == node
}
