package nodeloss

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// Controller cleans up after lost nodes. It writes events on the claims of lost volumes, and releases those whose storage class
// allows it (api.AnnotationOnNodeLoss), so that a StatefulSet starts with an empty volume on another node. One Controller of a cluster
// is active, and only where an admin installed it.
//
// It selects objects by the facts in memory, and reads an object from the API server before it decides on it.
type Controller struct {
	Client *kubeclient.Client
	Events *kubeclient.EventRecorder
	Losses *Losses
	Grace  time.Duration // how long a node or a group must have been lost before the controller deletes an object
	Log    *slog.Logger
}

// round is a Controller while it is active.
type round struct {
	*Controller
	*cluster.Objects
	began   time.Time
	queue   workqueue.TypedDelayingInterface[kubeclient.ObjectKey]
	backoff *flowcontrol.Backoff
}

func (c *Controller) newRound(objects *cluster.Objects) *round {
	return &round{
		Controller: c, Objects: objects, began: time.Now(), queue: workqueue.NewTypedDelayingQueue[kubeclient.ObjectKey](),
		backoff: flowcontrol.NewBackOff(kubeclient.BackoffFirst, kubeclient.BackoffMost),
	}
}

// Run works until ctx ends. Objects.Run must run it.
func (c *Controller) Run(ctx context.Context, objects *cluster.Objects) {
	r := c.newRound(objects)
	r.listen()
	var parts sync.WaitGroup
	parts.Go(func() { r.Losses.pruneRegularly(ctx, r.lasting) })
	parts.Go(func() {
		for r.next(ctx) {
		}
	})
	<-ctx.Done()
	r.queue.ShutDown()
	parts.Wait()
}

// listen queues each object that appears or changes.
func (r *round) listen() {
	r.Nodes.OnChange(r.nodeChanged)
	r.Volumes.OnChange(r.volumeChanged)
	r.Claims.OnChange(func(_, now *cluster.Claim) {
		if now != nil && now.SelectedNode != "" {
			r.add(kubeclient.KindClaim, now.Key())
		}
	})
	r.Contents.OnChange(r.contentChanged(kubeclient.KindContent))
	r.Groups.OnChange(r.contentChanged(kubeclient.KindGroupContent))
}

func (r *round) contentChanged(kind string) func(was, now *cluster.Content) {
	return func(_, now *cluster.Content) {
		if now != nil && now.Node != "" {
			r.add(kind, now.Key())
		}
	}
}

func (r *round) add(kind, key string) { r.queue.Add(kubeclient.ObjectKey{Kind: kind, Key: key}) }

// watchedLoss returns why a node is lost, as far as the facts about it show; here: the node exists.
func watchedLoss(node *corev1.Node, here bool) lossKind {
	if !here {
		return lossGone
	}
	return lossOf(node.Name, node, "").kind
}

// nodeChanged queues everything on a node when the node disappears, returns, or is tainted.
func (r *round) nodeChanged(was, now *corev1.Node) {
	if was != nil && now != nil && watchedLoss(was, true) == watchedLoss(now, true) {
		return
	}
	name := cmp.Or(now, was).Name
	if now != nil && watchedLoss(now, true) == lossNone {
		r.Losses.end(lossKey{node: name})
	}
	for _, v := range r.Volumes.On(name) {
		r.add(kubeclient.KindVolume, v.Key())
	}
	for _, c := range r.Claims.On(name) {
		r.add(kubeclient.KindClaim, c.Key())
	}
	for _, c := range r.Contents.On(name) {
		r.add(kubeclient.KindContent, c.Key())
	}
	for _, c := range r.Groups.On(name) {
		r.add(kubeclient.KindGroupContent, c.Key())
	}
}

// isBack reports whether a node exists and is in service.
func (r *round) isBack(name string) bool { return watchedLoss(r.Nodes.Find(name)) == lossNone }

// kindReturned is the kind in the queue of a volume that has no annotation of a loss any more.
const kindReturned = "returned " + kubeclient.KindVolume

// volumeChanged queues a volume. When its last annotation of a loss is removed, by its node's driver or by this controller, the loss of its
// volume group ends.
func (r *round) volumeChanged(was, now *cluster.Volume) {
	if now == nil || now.Node == "" {
		return
	}
	if was != nil && was.Noted && !now.Noted {
		vg, _, _ := strings.Cut(now.Handle, "/")
		r.Losses.end(groupLossKey(now.Node, vg))
		r.add(kindReturned, now.Key())
	}
	r.add(kubeclient.KindVolume, now.Key())
}

// next does one step for one object. It returns false when the queue has been shut down.
func (r *round) next(ctx context.Context) bool {
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
		r.Log.WarnContext(ctx, "failed; will retry", "object", id, "in", again, "error", err)
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
func (r *round) check(ctx context.Context, object kubeclient.ObjectKey) (time.Duration, error) {
	if !r.Nodes.IsSynced() || !r.Volumes.IsSynced() {
		return kubeclient.BackoffFirst, nil // no node counts as lost, and no handle as one volume's alone, before all are known
	}
	node, noted := r.place(object)
	switch {
	case node == "":
		return 0, nil
	case !noted && object.Kind != kindReturned && r.isBack(node):
		return 0, nil
	}
	switch object.Kind {
	case kubeclient.KindVolume:
		return r.checkVolume(ctx, object.Key, node)
	case kindReturned:
		return r.checkReturned(ctx, object.Key, node)
	case kubeclient.KindClaim:
		return r.checkClaim(ctx, object.Key, node)
	case kubeclient.KindGroupContent:
		return r.checkGroup(ctx, object.Key, node)
	default:
		return r.checkContent(ctx, object.Key, node)
	}
}

// place returns the node that has, or will have, an object's volume, and whether the object has an annotation of a loss; node is "" if
// there is no such object.
func (r *round) place(object kubeclient.ObjectKey) (node string, noted bool) {
	switch object.Kind {
	case kubeclient.KindVolume, kindReturned:
		if v, there := r.Volumes.Find(object.Key); there {
			return v.Node, v.Noted
		}
	case kubeclient.KindClaim:
		if c, there := r.Claims.Find(object.Key); there {
			return c.SelectedNode, false
		}
	case kubeclient.KindGroupContent:
		if c, there := r.Groups.Find(object.Key); there {
			return c.Node, c.Noted
		}
	default:
		if c, there := r.Contents.Find(object.Key); there {
			return c.Node, c.Noted
		}
	}
	return "", false
}

// checkClaim removes the selected node from an unbound claim if that node is gone or out of service: no driver on it
// creates the volume, and the scheduler does not change its choice.
func (r *round) checkClaim(ctx context.Context, key, node string) (time.Duration, error) {
	namespace, name := kubeclient.ClaimKey(key)
	claim, err := r.Client.Claim(ctx, namespace, name)
	if err != nil || claim == nil || claim.Spec.VolumeName != "" || pending.NodeOfClaim(claim, nil) != node {
		return 0, err
	}
	class, err := r.Client.Class(ctx, kubeclient.ClassOf(claim))
	if err != nil || class == nil || class.Provisioner != api.DriverName {
		return 0, err
	}
	there, err := r.Client.Node(ctx, node)
	if err != nil {
		return 0, err
	}
	lost := lossOf(node, there, "")
	if lost.kind == lossNone {
		return 0, nil
	}
	if _, err := r.Client.PatchClaim(ctx, claim, "", kubeclient.Patch{Annotations: map[string]any{api.AnnotationSelectedNode: nil}}); err != nil {
		return 0, fmt.Errorf("return claim %s to the scheduler: %w", key, err)
	}
	message := lost.String() + "; this claim returns to the scheduler, which selects another node"
	r.Log.InfoContext(ctx, message, "claim", key)
	return 0, r.Events.Record(ctx, kubeclient.Event{About: kubeclient.AboutClaim(namespace, name, claim.UID), Kind: corev1.EventTypeNormal, Reason: api.ReasonSelectedNodeRemoved, Message: message})
}

// remove deletes an object if it has not changed since it was read. grace is in seconds; nil: the object's own.
func remove(ctx context.Context, client rest.Interface, resource string, o metav1.Object, grace *int64) error {
	options := &metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: &metav1.Preconditions{
		UID: ptr.To(o.GetUID()), ResourceVersion: ptr.To(o.GetResourceVersion()),
	}}
	return client.Delete().NamespaceIfScoped(o.GetNamespace(), o.GetNamespace() != "").Resource(resource).Name(o.GetName()).Body(options).Do(ctx).Error()
}
