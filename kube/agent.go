package kube

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/attributes"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// Volumes is the part of host.Host that this package uses; see there for the results.
type Volumes interface {
	Lookup(ctx context.Context, id lvm.ID) (lvm.Volume, error)
	LookupSnapshot(ctx context.Context, id lvm.ID) (lvm.Snapshot, error)
	Extend(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error)
	ExtendBlock(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error)
}

// Copies are full copies of what is on this node; *fullcopy.Agent implements it.
type Copies interface {
	// Offer says how other nodes copy a snapshot of this one.
	Offer(sn lvm.Snapshot) (string, error)
	// OfferClone has a snapshot taken for a clone that waits on another node, and said how that copies it. It does not wait for that.
	OfferClone(claim *corev1.PersistentVolumeClaim)
}

// Config configures an Agent.
type Config struct {
	Client      *kubeclient.Client
	Node        string                                         // this node's name, and its topology value
	Volumes     Volumes                                        // this node's
	Health      func(context.Context) ([]lvm.Condition, error) // nil: conditions are not reported; called every 30 s
	HealthScope func(context.Context) (lvm.HealthScope, error) // what Health can observe now; nil: each condition that Health no longer finds is resolved
	Log         *slog.Logger                                   // nil: slog.Default()

	Holdings   func(context.Context) (lvm.ManagedVolumes, error) // nil: no search for orphans
	AuditEvery time.Duration                                     // interval of that search; 0: one hour

	Register func() error // makes the kubelet register the driver again; nil: the registration is not checked

	Limits attributes.Limits // this node's; nil: claims' VolumeAttributesClasses are ignored

	Snapshots bool // csi-snapshotter runs on this node: label contents for it

	Copies Copies // nil: other nodes copy nothing of this one

	Moves func(claim *corev1.PersistentVolumeClaim, deleted bool) // gets each claim of the watch, for kube/move; nil: no volume moves
}

// Agent acts for this node in the API. It expands the node's volumes, changes their attributes, selects this node for clones of its volumes and
// snapshots, makes csi-provisioner retry claims that it missed, and reports conditions. An idle Agent costs a watch on
// storage classes, one on claims and, with Snapshots, one on contents without a label.
type Agent struct {
	client  *kubeclient.Client
	node    string
	volumes Volumes
	health  func(context.Context) ([]lvm.Condition, error)
	scope   func(context.Context) (lvm.HealthScope, error)
	log     *slog.Logger
	events  *kubeclient.EventRecorder
	pods    *podLister
	handles *handleIndex
	owners  *ownerLists

	copies Copies // nil: claims are restored and cloned on the node of their source alone

	modifier *attributes.Modifier // nil: the attributes of volumes are not changed

	classes    *kubeclient.FilteredStore[*storagev1.StorageClass] // by name: this driver's
	claims     *claimStore
	contents   *kubeclient.FilteredStore[*kubeclient.Content] // by name: the ready ones on this node
	unlabelled *kubeclient.FilteredStore[unlabelled]          // nil: no watch on contents without a node label

	queue   workqueue.TypedDelayingInterface[kubeclient.ObjectKey]
	backoff *flowcontrol.Backoff // by job.id

	retryDelay time.Duration        // before the first retry of a claim
	kindAgain  time.Duration        // interval of the check for the snapshot API
	retries    *flowcontrol.Backoff // by the claim's UID

	together together

	audit   audit
	missing missingVolumes

	register func() error
	nodes    existingNodes

	work     sync.WaitGroup // goroutines of Run
	restores sync.Once      // starts the watch on contents
}

// Back-off between two attempts, the same as the sidecars': no event announces free capacity or a returned disk, and a
// failed attempt is cheap. workers is the number of claims in work at a time; LVM allows one writer per volume group
// anyway.
const (
	workers = 4
)

// NewAgent creates an Agent without sending a request.
func NewAgent(cfg Config) *Agent {
	a := &Agent{
		client: cfg.Client, node: cfg.Node, volumes: cfg.Volumes, health: cfg.Health, scope: cfg.HealthScope,
		log:     cmp.Or(cfg.Log, slog.Default()),
		events:  &kubeclient.EventRecorder{Client: cfg.Client, Node: cfg.Node, Counts: map[string]kubeclient.EventCount{}},
		pods:    newPodLister(cfg.Client.Core),
		handles: newHandleIndex(cfg.Client),
		owners:  newOwnerLists(cfg.Client),
		queue:   workqueue.NewTypedDelayingQueue[kubeclient.ObjectKey](),
		backoff: flowcontrol.NewBackOff(kubeclient.BackoffFirst, kubeclient.BackoffMost),

		retryDelay: retryFirst,
		kindAgain:  kindAgain,
		retries:    flowcontrol.NewBackOff(2*retryFirst, retryMost),

		audit: newAudit(cfg),

		register: cfg.Register, copies: cfg.Copies,
	}
	a.modifier = a.newModifier(cfg.Limits)
	a.claims = newClaimStore(a.node, func(key string) { a.queue.Add(kubeclient.ObjectKey{Kind: kubeclient.KindClaim, Key: key}) })
	a.claims.observe = cfg.Moves
	a.claims.modifies = a.modifier != nil
	a.classes = newClassStore(func(name string) {
		a.queue.Add(kubeclient.ObjectKey{Kind: kubeclient.KindClass, Key: name})
		a.claims.wakeAll(func(claim *corev1.PersistentVolumeClaim) bool { return kubeclient.ClassOf(claim) == name })
	})
	a.contents = newContentStore(func(snapshot string) { a.claims.wakeFrom(source{kubeclient.KindSnapshot, snapshot}) })
	if cfg.Snapshots {
		a.unlabelled = newUnlabelledStore(func(name string) { a.queue.Add(kubeclient.ObjectKey{Kind: kubeclient.KindContent, Key: name}) })
	}
	return a
}

// Run works until ctx ends, and returns when all of its goroutines have ended. It completes a step on a volume that it has started.
func (a *Agent) Run(ctx context.Context) {
	a.work.Go(func() {
		kubeclient.Reflect(ctx, a.client.Storage, "storageclasses", "", &storagev1.StorageClass{}, a.classes)
	})
	a.work.Go(func() {
		a.learnVolumes(ctx) // before the watch brings claims: it keeps those of this node's volumes
		kubeclient.Reflect(ctx, a.client.Core, "persistentvolumeclaims", "", &corev1.PersistentVolumeClaim{}, a.claims)
	})
	a.work.Go(func() { a.watchUnlabelled(ctx) })
	a.work.Go(func() { a.watchHealth(ctx) })
	a.work.Go(func() { a.watchOrphans(ctx) })
	a.work.Go(func() { a.watchRegistration(ctx) })
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

// ClassOf returns the name of the storage class of the claim that is bound to a PersistentVolume; "" if the agent does not know the
// claim.
func (a *Agent) ClassOf(volume string) string {
	_, own, _ := a.claims.boundTo(volume)
	return own.class
}

// watchContents starts, once, the watch on the contents of this node's snapshots. A cluster without snapshots, or without a
// restore, never has this watch.
func (a *Agent) watchContents(ctx context.Context) {
	a.restores.Do(func() {
		a.work.Go(func() {
			kubeclient.Reflect(ctx, a.client.Snapshots, "volumesnapshotcontents", api.LabelManagedBy+"="+a.node, &kubeclient.Content{}, a.contents)
		})
	})
}

// job is the work for a class, a claim, or a content.
type job struct {
	id string // key of the back-off
	do func(context.Context) (tried bool, err error)
}

// next does the job of one object. It returns false when the queue has been shut down.
func (a *Agent) next(ctx context.Context) bool {
	object, ended := a.queue.Get()
	if ended {
		return false
	}
	defer a.queue.Done(object)
	job, ok := a.jobFor(ctx, object)
	if !ok {
		return true
	}
	now := time.Now()
	if a.backoff.IsInBackOffSinceUpdate(job.id, now) {
		a.queue.AddAfter(object, a.backoff.Get(job.id))
		return true
	}
	tried, err := job.do(ctx)
	if tried || err != nil {
		a.backoff.Next(job.id, now)
	}
	if err != nil && ctx.Err() == nil {
		a.queue.AddAfter(object, a.backoff.Get(job.id))
		a.log.WarnContext(ctx, "failed; will retry", "object", object.String(), "in", a.backoff.Get(job.id), "error", err)
	}
	return true
}

// jobFor finds the job for an object.
func (a *Agent) jobFor(ctx context.Context, object kubeclient.ObjectKey) (job, bool) {
	switch object.Kind {
	case kubeclient.KindContent:
		return a.jobForContent(object.Key)
	case kubeclient.KindClass:
		return a.jobForClass(object.Key)
	case kindAttributes:
		return a.jobForAttributes(object)
	}
	return a.jobForClaim(ctx, object.Key)
}

// jobForClass finds the job for a storage class: a warning, if it binds immediately.
func (a *Agent) jobForClass(name string) (job, bool) {
	class, ok, _ := a.classes.Find(name)
	if !ok || !bindsImmediately(class) {
		return job{}, false
	}
	return job{string(class.UID), func(ctx context.Context) (bool, error) { return false, a.warnOfClass(ctx, class) }}, true
}

// jobForClaim finds the job for a claim that waits for something.
func (a *Agent) jobForClaim(ctx context.Context, key string) (job, bool) {
	claim, ok := a.claims.waiting(key)
	if !ok {
		return job{}, false
	}
	if claim.Spec.VolumeName != "" {
		if !a.mayResize(ctx, claim) {
			return job{}, false
		}
		if a.wantsAttributes(claim) {
			a.queue.Add(kubeclient.ObjectKey{Kind: kindAttributes, Key: key})
		}
		if !isOpen(claim) {
			return job{}, false
		}
		id := string(claim.UID) + "/" + claim.Spec.Resources.Requests.Storage().String()
		return job{id, func(ctx context.Context) (bool, error) { return a.resize(ctx, claim) }}, true
	}
	class, ok, _ := a.classes.Find(kubeclient.ClassOf(claim))
	if !ok {
		return job{}, false
	}
	if bindsImmediately(class) {
		return job{string(claim.UID), func(ctx context.Context) (bool, error) { return false, a.warnOfClaim(ctx, claim) }}, true
	}
	from := sourceOf(claim)
	if from.kind == kubeclient.KindSnapshot {
		a.watchContents(ctx)
	}
	if pending.NodeOfClaim(claim, nil) == a.node {
		if pending.IsBoundByOthers(claim) {
			return a.jobForSelecting(claim)
		}
		return job{string(claim.UID) + "/retrigger", func(ctx context.Context) (bool, error) { return false, a.retrigger(ctx, claim) }}, true
	}
	if from == (source{}) || claim.Spec.Selector != nil {
		return job{string(claim.UID) + "/selection", func(ctx context.Context) (bool, error) { return false, a.checkSelection(ctx, claim) }}, mayReturn(claim)
	}
	if a.isPlacedByScheduler(claim) {
		return a.jobForOffer(claim, from)
	}
	return job{string(claim.UID), func(ctx context.Context) (bool, error) { return a.pin(ctx, claim, from) }}, true
}
