package kube

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/lvm"
)

// DriverName is the name of this driver in StorageClass, PersistentVolume and VolumeSnapshotContent objects.
const DriverName = "nodelvm.io"

// Volumes is what this package asks of lvm.Host; the outcomes are described there.
type Volumes interface {
	Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error)
	LookupSnapshot(ctx context.Context, id lvm.ID) (lvm.Snapshot, error)
	Extend(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error)
	ExtendBlock(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error)
}

// Config says for whom an Agent acts.
type Config struct {
	Client      *Client
	Node        string                                         // this node's name, which is also its topology value
	Volumes     Volumes                                        // this node's
	Health      func(context.Context) ([]lvm.Finding, error)   // nil: health is not told of; asked every 30 s
	HealthScope func(context.Context) (lvm.HealthScope, error) // what Health can see now; nil: all that it is asked for
	Log         *slog.Logger                                   // nil: slog.Default()

	Holdings   func(context.Context) (lvm.ManagedVolumes, error) // nil: orphans are not looked for
	AuditEvery time.Duration                                     // how often they are; 0: once an hour

	Snapshots bool // csi-snapshotter runs on this node: contents that were made by hand are labelled for it
}

// Agent acts for this node in the API: it enlarges the node's volumes, keeps copies where their source is, sees to it that
// no claim is overlooked, and tells of trouble. Idle, it costs a watch on storage classes and one on claims, and with
// Snapshots one on contents.
type Agent struct {
	client  *Client
	node    string
	volumes Volumes
	health  func(context.Context) ([]lvm.Finding, error)
	scope   func(context.Context) (lvm.HealthScope, error)
	log     *slog.Logger
	events  *teller
	pods    *podLister
	handles *handleIndex

	classes  *classStore
	claims   *claimStore
	contents *contentStore
	handmade *shelf[handmade] // nil: they are not looked for

	queue   workqueue.TypedDelayingInterface[string] // keys as of jobFor
	backoff *flowcontrol.Backoff                     // by job.id

	patience  time.Duration        // before the first reminder of a claim
	kindAgain time.Duration        // between two questions whether there are snapshots
	reminders *flowcontrol.Backoff // by the claim's UID

	audit audit

	work     sync.WaitGroup // what Run has started
	restores sync.Once      // begins the watch on contents
}

// Waiting times between two attempts at one thing, as those of the sidecars beside this process: nothing wakes what waits
// for room or for a disk, and an attempt in vain is cheap. And how many claims are worked on at a time; LVM lets one
// writer at a time into a group anyway.
const (
	backoffFirst = time.Second
	backoffMost  = 30 * time.Second
	workers      = 4
)

// NewAgent makes an Agent; it sends no request.
func NewAgent(cfg Config) *Agent {
	a := &Agent{
		client: cfg.Client, node: cfg.Node, volumes: cfg.Volumes, health: cfg.Health, scope: cfg.HealthScope,
		log:     cmp.Or(cfg.Log, slog.Default()),
		events:  &teller{client: cfg.Client, node: cfg.Node, told: map[string]telling{}},
		pods:    newPodLister(cfg.Client.core),
		handles: newHandleIndex(cfg.Client),
		queue:   workqueue.NewTypedDelayingQueue[string](),
		backoff: flowcontrol.NewBackOff(backoffFirst, backoffMost),

		patience:  reminderFirst,
		kindAgain: kindAgain,
		reminders: flowcontrol.NewBackOff(2*reminderFirst, reminderMost),

		audit: newAudit(cfg),
	}
	a.claims = newClaimStore(a.node, a.queue.Add)
	a.classes = newClassStore(func(class *storagev1.StorageClass) {
		a.queue.Add(class.Name)
		a.claims.wakeAll(func(claim *corev1.PersistentVolumeClaim) bool { return classOf(claim) == class.Name })
	})
	a.contents = newContentStore(func(snapshot string) {
		a.claims.wakeAll(func(claim *corev1.PersistentVolumeClaim) bool {
			return sourceOf(claim) == source{kindSnapshot, snapshot}
		})
	})
	if cfg.Snapshots {
		a.handmade = newHandmadeStore(func(name string) { a.queue.Add(contentPrefix + name) })
	}
	return a
}

// Run acts until ctx ends, and returns when everything that it started has ended. What was begun on a volume is brought
// to its end.
func (a *Agent) Run(ctx context.Context) {
	a.work.Go(func() {
		reflect(ctx, a.client.storage, "storageclasses", "", &storagev1.StorageClass{}, a.classes)
	})
	a.work.Go(func() {
		reflect(ctx, a.client.core, "persistentvolumeclaims", "", &corev1.PersistentVolumeClaim{}, a.claims)
	})
	a.work.Go(func() { a.watchHandmade(ctx) })
	a.work.Go(func() { a.watchHealth(ctx) })
	a.work.Go(func() { a.watchOrphans(ctx) })
	for range workers {
		a.work.Go(func() {
			for a.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	a.queue.ShutDown()
	a.work.Wait()
}

// watchContents begins, once, to watch the contents of this node's snapshots. A cluster in which nothing is restored, and
// one without snapshots, has no such watch.
func (a *Agent) watchContents(ctx context.Context) {
	a.restores.Do(func() {
		a.work.Go(func() {
			reflect(ctx, a.client.snapshots, "volumesnapshotcontents", labelManagedBy+"="+a.node, &content{}, a.contents)
		})
	})
}

// job is something to be done about a class, a claim, or a content.
type job struct {
	id string // the same as long as it is the same thing that is tried: waiting times are kept by it
	do func(context.Context) (tried bool, err error)
}

// next does what there is to do about one object. It answers false when the queue has ended.
func (a *Agent) next(ctx context.Context) bool {
	key, ended := a.queue.Get()
	if ended {
		return false
	}
	defer a.queue.Done(key)
	job, ok := a.jobFor(ctx, key)
	if !ok {
		return true
	}
	now := time.Now()
	if a.backoff.IsInBackOffSinceUpdate(job.id, now) {
		a.queue.AddAfter(key, a.backoff.Get(job.id))
		return true
	}
	tried, err := job.do(ctx)
	if tried || err != nil {
		a.backoff.Next(job.id, now)
	}
	if err != nil && ctx.Err() == nil {
		a.queue.AddAfter(key, a.backoff.Get(job.id))
		a.log.WarnContext(ctx, "will be tried again", "object", key, "in", a.backoff.Get(job.id), "error", err)
	}
	return true
}

// jobFor finds what there is to do about a storage class (its name), a claim (namespace/name), or a content that was made
// by hand (its name behind contentPrefix).
func (a *Agent) jobFor(ctx context.Context, key string) (job, bool) {
	if name, ok := strings.CutPrefix(key, contentPrefix); ok {
		return a.jobForContent(name)
	}
	if !strings.Contains(key, "/") {
		class, ok := a.classes.find(key)
		if !ok || !bindsImmediately(class) {
			return job{}, false
		}
		return job{string(class.UID), func(ctx context.Context) (bool, error) { return false, a.warnOfClass(ctx, class) }}, true
	}
	claim, ok := a.claims.waiting(key)
	if !ok {
		return job{}, false
	}
	if claim.Spec.VolumeName != "" {
		if !a.mayResize(claim) {
			return job{}, false
		}
		id := string(claim.UID) + "/" + claim.Spec.Resources.Requests.Storage().String()
		return job{id, func(ctx context.Context) (bool, error) { return a.resize(ctx, claim) }}, true
	}
	class, ok := a.classes.find(classOf(claim))
	if !ok {
		return job{}, false
	}
	if bindsImmediately(class) {
		return job{string(claim.UID), func(ctx context.Context) (bool, error) { return false, a.warnOfClaim(ctx, claim) }}, true
	}
	from := sourceOf(claim)
	if from.kind == kindSnapshot {
		a.watchContents(ctx)
	}
	if claim.Annotations[annSelectedNode] == a.node {
		if isPopulated(claim) || claim.Spec.Selector != nil {
			return job{}, false // csi-provisioner makes no volume for it
		}
		return job{string(claim.UID) + "/reminder", func(ctx context.Context) (bool, error) { return false, a.remind(ctx, claim) }}, true
	}
	if from == (source{}) || claim.Spec.Selector != nil {
		return job{}, false
	}
	return job{string(claim.UID), func(ctx context.Context) (bool, error) { return a.pin(ctx, claim, from) }}, true
}

func classOf(claim *corev1.PersistentVolumeClaim) string {
	return ptr.Deref(claim.Spec.StorageClassName, "")
}
