package groupsnapshot

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	queue   workqueue.TypedDelayingInterface[string] // names of contents
	backoff *flowcontrol.Backoff                     // by the content's UID
	own     *kubeclient.FilteredStore[content]       // with this node's label
	free    *kubeclient.FilteredStore[content]       // without a label
}

// New creates an Actor without sending a request.
func New(cfg Config) *Actor {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.NameThinClass == nil {
		cfg.NameThinClass = func(err error) error { return err }
	}
	a := &Actor{Config: cfg, queue: workqueue.NewTypedDelayingQueue[string](), backoff: flowcontrol.NewBackOff(backoffFirst, backoffMost)}
	store := func() *kubeclient.FilteredStore[content] {
		return &kubeclient.FilteredStore[content]{
			Key: kubeclient.KeyOfObject, Keep: keep, Strip: strip, Changed: func(name string, _ []content) { a.queue.Add(name) },
		}
	}
	a.own, a.free = store(), store()
	return a
}

// strip drops what the Actor does not read.
func strip(o any) any {
	if c, ok := o.(*kubeclient.GroupContent); ok {
		c.ManagedFields = nil
		c.Annotations = kubeclient.Only(c.Annotations, api.AnnotationGroupBeingCreated, api.AnnotationGroupBeingDeleted)
		c.Labels = kubeclient.Only(c.Labels, api.LabelManagedBy)
		c.Spec.Source.VolumeHandles = keepHandles(c.Spec.Source.VolumeHandles)
		c.Spec.Source.Existing.SnapshotHandles = keepHandles(c.Spec.Source.Existing.SnapshotHandles)
	}
	return o
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
	name, ended := a.queue.Get()
	if ended {
		return false
	}
	defer a.queue.Done(name)
	c, there, _ := a.own.Find(name)
	if !there {
		if c, there, _ = a.free.Find(name); !there {
			a.backoff.GC() // nothing else forgets the failures of contents that are gone
			return true
		}
	}
	if a.backoff.IsInBackOffSinceUpdate(c.uid, time.Now()) {
		a.queue.AddAfter(name, a.backoff.Get(c.uid))
		return true
	}
	err := a.act(ctx, c)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		a.backoff.Reset(c.uid) // the watch brings the new version
		return true
	}
	if ctx.Err() == nil {
		a.backoff.Next(c.uid, time.Now())
		a.queue.AddAfter(name, a.backoff.Get(c.uid))
		a.Log.WarnContext(ctx, "failed; will retry", "content", name, "in", a.backoff.Get(c.uid), "error", err)
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

// label labels a content with this node's name if its first volume, or its group snapshot, is here.
func (a *Actor) label(ctx context.Context, c content) error {
	here, err := a.isHere(ctx, c)
	if err != nil || !here {
		a.queue.AddAfter(c.name, elsewhereInterval)
		return err
	}
	return a.patch(ctx, c, "", metadata(c, map[string]any{"labels": map[string]any{api.LabelManagedBy: a.Node}}))
}

// isHere reports whether this node has what decides on a content's node. For a deletion the volume group suffices: what was in it may be gone.
func (a *Actor) isHere(ctx context.Context, c content) (bool, error) {
	var err error
	switch {
	case c.existing != "":
		var id lvm.ID
		if id, err = lvm.ParseID(c.existing); err == nil {
			_, err = a.Host.LookupGroupSnapshot(ctx, id)
		}
	case len(c.volumes) > 0:
		err = a.lookup(ctx, c.volumes[0])
	default:
		return false, nil
	}
	if c.deleting && err != nil && lvm.KindOf(err) == lvm.KindNotFound {
		return true, nil
	}
	return isFound(err)
}

func (a *Actor) lookup(ctx context.Context, handle string) error {
	id, err := lvm.ParseID(handle)
	if err == nil {
		_, err = a.Host.Lookup(ctx, id)
	}
	return err
}

func isFound(err error) (bool, error) {
	switch {
	case err == nil:
		return true, nil
	case lvm.KindOf(err) == lvm.KindInternal || lvm.KindOf(err) == lvm.KindBusy:
		return false, err
	}
	return false, nil
}

// take marks the content, takes its group snapshot, and writes the status. An error goes into the status too, and is retried.
func (a *Actor) take(ctx context.Context, c content) error {
	if !c.marked {
		if err := a.patch(ctx, c, "", metadata(c, map[string]any{"annotations": map[string]any{api.AnnotationGroupBeingCreated: "yes"}})); err != nil {
			return err
		}
	}
	spec, err := a.spec(ctx, c)
	var made lvm.GroupSnapshot
	if err == nil {
		made, err = a.Host.CreateGroupSnapshot(ctx, spec, a.Sync)
	}
	if err != nil {
		return a.fail(ctx, c, a.NameThinClass(err))
	}
	return a.patch(ctx, c, "status", statusOf(made))
}

// spec is the request for a content's group snapshot. The error names the claims and nodes of volumes that are not all here.
func (a *Actor) spec(ctx context.Context, c content) (lvm.GroupSnapshotSpec, error) {
	spec := lvm.GroupSnapshotSpec{Name: c.groupSnapshotName()}
	if len(c.volumes) > lvm.MaxGroupMembers {
		return spec, lvm.Errorf(lvm.KindInvalid, "the group has more than %d volumes, the maximum: select fewer claims by a narrower label", lvm.MaxGroupMembers)
	}
	var elsewhere []string
	for _, handle := range c.volumes {
		here, err := isFound(a.lookup(ctx, handle))
		if err != nil {
			return spec, err
		}
		if !here {
			elsewhere = append(elsewhere, handle)
			continue
		}
		id, err := lvm.ParseID(handle)
		if err != nil {
			return spec, err
		}
		spec.Sources = append(spec.Sources, id)
	}
	if len(elsewhere) == 0 {
		return spec, nil
	}
	var places []string
	for _, handle := range elsewhere {
		places = append(places, a.place(ctx, handle))
	}
	return spec, lvm.Errorf(lvm.KindInvalid, "a group snapshot is of one node's volumes, and %d of %d are on node %s. The others: %s. Select claims of one node by their labels, or keep their pods together (docs/howto/snapshots.md)",
		len(spec.Sources), len(c.volumes), a.Node, strings.Join(places, "; "))
}

// place describes where a volume that is not here is: its claim and node.
func (a *Actor) place(ctx context.Context, handle string) string {
	_, name, _ := strings.Cut(handle, "/")
	var pv corev1.PersistentVolume
	there, err := kubeclient.Get(ctx, a.Client.Core, "persistentvolumes", "", name, &pv)
	if err != nil || !there || pv.Spec.CSI == nil || pv.Spec.CSI.VolumeHandle != handle {
		return "volume " + handle
	}
	place := "volume " + pv.Name
	if claim := pv.Spec.ClaimRef; claim != nil {
		place = "claim " + claim.Namespace + "/" + claim.Name
	}
	if node := nodeOf(pv); node != "" {
		place += " on node " + node
	}
	return place
}

// nodeOf returns the node in a volume's affinity; "" if there is not exactly one.
func nodeOf(pv corev1.PersistentVolume) string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return ""
	}
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == api.TopologyKey && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
				return e.Values[0]
			}
		}
	}
	return ""
}

// maxMessage bounds an error in a status.
const maxMessage = 1024

// fail writes an error into the content's status, from where the snapshot controller copies it to the VolumeGroupSnapshot. If no snapshot can
// exist, it ends the creation, so that the VolumeGroupSnapshot can be deleted.
func (a *Actor) fail(ctx context.Context, c content, cause error) error {
	message := "node " + a.Node + ": " + cause.Error()
	body := map[string]any{"status": map[string]any{
		"readyToUse": false,
		"error":      map[string]any{"message": message[:min(len(message), maxMessage)], "time": metav1.Now()},
	}}
	if err := a.patch(ctx, c, "status", body); err != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	if lvm.KindOf(cause) == lvm.KindBusy || lvm.KindOf(cause) == lvm.KindInternal {
		return cause
	}
	if err := a.patch(ctx, c, "", map[string]any{"metadata": map[string]any{"annotations": map[string]any{api.AnnotationGroupBeingCreated: nil}}}); err != nil {
		return fmt.Errorf("%w (%w)", cause, err)
	}
	return cause
}

// statusOf is the status of a content with a group snapshot.
func statusOf(made lvm.GroupSnapshot) map[string]any {
	var members []map[string]any
	for _, sn := range made.Members {
		members = append(members, map[string]any{
			"volumeHandle": sn.Source.String(), "snapshotHandle": sn.ID.String(), "creationTime": made.Created.UnixNano(),
			"readyToUse": true, "restoreSize": int64(sn.Size),
		})
	}
	return map[string]any{"status": map[string]any{
		"volumeGroupSnapshotHandle": made.ID.String(), "creationTime": metav1.NewTime(made.Created), "readyToUse": true, "error": nil,
		"volumeSnapshotInfoList": members,
	}}
}

// adopt writes the status of a content that was made by hand for an existing group snapshot.
func (a *Actor) adopt(ctx context.Context, c content) error {
	id, err := lvm.ParseID(c.existing)
	var found lvm.GroupSnapshot
	if err == nil {
		found, err = a.Host.LookupGroupSnapshot(ctx, id)
	}
	if err == nil {
		err = checkMembers(found, c.members)
	}
	if err != nil {
		return a.fail(ctx, c, err)
	}
	return a.patch(ctx, c, "status", statusOf(found))
}

// checkMembers refuses snapshot handles that are not exactly those of the group snapshot.
func checkMembers(found lvm.GroupSnapshot, handles []string) error {
	var want []string
	for _, sn := range found.Members {
		want = append(want, sn.ID.String())
	}
	slices.Sort(want)
	if got := slices.Sorted(slices.Values(handles)); !slices.Equal(got, want) {
		return lvm.Errorf(lvm.KindInvalid, "group snapshot %s has the snapshots %s, and volumeSnapshotHandles must list exactly these", found.ID, strings.Join(want, ", "))
	}
	return nil
}

// remove deletes the group snapshot, and then clears the handle.
func (a *Actor) remove(ctx context.Context, c content) error {
	id, err := lvm.ParseID(c.handle)
	if err == nil && id.IsGroupSnapshot() {
		if err := a.deleteUnneeded(ctx, id); err != nil {
			return a.fail(ctx, c, err)
		}
	}
	return a.patch(ctx, c, "status", map[string]any{"status": map[string]any{"volumeGroupSnapshotHandle": nil, "readyToUse": nil, "creationTime": nil, "error": nil}})
}

// deleteUnneeded deletes a group snapshot unless another object needs it.
func (a *Actor) deleteUnneeded(ctx context.Context, id lvm.ID) error {
	if err := a.Client.MayDeleteGroup(ctx, id); err != nil {
		return err
	}
	return a.Host.DeleteGroupSnapshot(ctx, id)
}

// release deletes a group snapshot that the status does not name, and removes the finalizer.
func (a *Actor) release(ctx context.Context, c content) error {
	if id, may := c.unnamed(); may {
		err := a.deleteUnneeded(ctx, id)
		if lvm.KindOf(err) == lvm.KindNotLocal && a.neverTaken(ctx, c, id) {
			err = nil
		}
		if err != nil {
			return a.fail(ctx, c, err)
		}
	}
	left := slices.DeleteFunc(slices.Clone(c.finalizers), func(f string) bool { return f == api.FinalizerGroupContent })
	return a.patch(ctx, c, "", metadata(c, map[string]any{"finalizers": left}))
}

// neverTaken reports whether the volume group of a group snapshot that no other group has a member of is another node's, so that none was taken.
// A ready group snapshot has a member in the group of the content's first volume, which was on this node when the content got the label. If that
// group is missing now, nothing is known.
func (a *Actor) neverTaken(ctx context.Context, c content, id lvm.ID) bool {
	if strings.HasPrefix(c.volumes[0], string(id.VG)+"/") {
		return false
	}
	err := a.lookup(ctx, c.volumes[0])
	kind := lvm.KindOf(err)
	return err == nil || kind == lvm.KindNotFound || kind == lvm.KindNotManaged
}
