package nodegroup

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// Publisher writes the CSIStorageCapacities of the node groups, and keeps them up to date.
type Publisher struct {
	Client    *kubeclient.Client
	Namespace string // of all CSIStorageCapacities of the driver
	Groups    []Group
	Log       *slog.Logger
}

// interval is the time between two comparisons of the existing objects with those that should exist. A Publisher reads from memory,
// and writes only differences.
const interval = 5 * time.Second

// Run works until ctx ends. Only one Publisher of a cluster may run.
func (p *Publisher) Run(ctx context.Context) {
	v := newView(p.Client, p.Namespace)
	var parts sync.WaitGroup
	defer parts.Wait()
	v.watch(ctx, &parts)
	for ctx.Err() == nil {
		if s, known := v.state(time.Now()); known {
			if err := p.write(ctx, s); err != nil && ctx.Err() == nil {
				p.Log.WarnContext(ctx, "cannot publish the capacity of node groups; will retry", "in", kubeclient.BackoffMost, "error", err)
				kubeclient.Sleep(ctx, kubeclient.BackoffMost)
			}
		}
		kubeclient.Sleep(ctx, interval)
	}
}

// write creates, updates and deletes objects until those of the node groups are right.
func (p *Publisher) write(ctx context.Context, s state) error {
	wanted := templates(p.Groups, s, p.Namespace)
	var all error
	request := func(o *storagev1.CSIStorageCapacity, verb string, err error) {
		if err != nil { // another version of the object arrives by the watch
			all = errors.Join(all, kubeclient.UnlessConflict(kubeclient.UnlessNotFound(err)))
			return
		}
		p.Log.InfoContext(ctx, "capacity of a new node", "done", verb, "nodeGroup", o.Labels[api.LabelNodeGroup], "storageClass", o.StorageClassName, "capacity", o.Capacity.String())
	}
	for name, o := range wanted {
		was := s.existing[name]
		switch {
		case was == nil:
			request(o, "created", p.Client.Storage.Post().Namespace(p.Namespace).Resource(resourceName).Body(o).Do(ctx).Error())
		case !isSame(was, o):
			o.ResourceVersion = was.ResourceVersion
			request(o, "updated", p.Client.Storage.Put().Namespace(p.Namespace).Resource(resourceName).Name(name).Body(o).Do(ctx).Error())
		}
	}
	for name, o := range s.existing {
		if wanted[name] == nil {
			request(o, "deleted", p.Client.Storage.Delete().Namespace(p.Namespace).Resource(resourceName).Name(name).Do(ctx).Error())
		}
	}
	return all
}

const resourceName = "csistoragecapacities"

// view has a Publisher's watches.
type view struct {
	client     *kubeclient.Client
	namespace  string
	nodes      *kubeclient.FilteredStore[node]
	volumes    *kubeclient.FilteredStore[string] // by name: the node
	claims     *kubeclient.FilteredStore[string] // without a volume, by namespace/name: the selected node
	classes    *kubeclient.FilteredStore[class]
	capacities *kubeclient.FilteredStore[*storagev1.CSIStorageCapacity]

	mu    sync.Mutex
	since map[string]time.Time // by name of a capacity: when it last changed
}

func newView(client *kubeclient.Client, namespace string) *view {
	v := &view{client: client, namespace: namespace, since: map[string]time.Time{}}
	v.nodes = kubeclient.NewFilteredStore(keepNode)
	v.volumes = kubeclient.NewFilteredStore(keepVolume)
	v.claims = kubeclient.NewFilteredStore(keepClaim)
	v.classes = kubeclient.NewFilteredStore(keepClass)
	v.capacities = kubeclient.NewFilteredStore(keepCapacity)
	v.capacities.Changed = v.capacityChanged
	return v
}

func (v *view) watch(ctx context.Context, parts *sync.WaitGroup) {
	core, storage := v.client.Core, v.client.Storage
	parts.Go(func() { kubeclient.Reflect(ctx, core, "nodes", "", &corev1.Node{}, v.nodes) })
	parts.Go(func() {
		kubeclient.Reflect(ctx, core, "persistentvolumes", "", &corev1.PersistentVolume{}, v.volumes)
	})
	parts.Go(func() {
		kubeclient.Reflect(ctx, core, "persistentvolumeclaims", "", &corev1.PersistentVolumeClaim{}, v.claims)
	})
	parts.Go(func() { kubeclient.Reflect(ctx, storage, "storageclasses", "", &storagev1.StorageClass{}, v.classes) })
	parts.Go(func() {
		kubeclient.ReflectIn(ctx, v.namespace, storage, resourceName, "csi.storage.k8s.io/drivername="+api.DriverName, &storagev1.CSIStorageCapacity{}, v.capacities)
	})
}

// capacityChanged records when a capacity changed.
func (v *view) capacityChanged(name string, versions []*storagev1.CSIStorageCapacity) {
	if len(versions) == 2 && isSame(versions[0], versions[1]) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, there, _ := v.capacities.Find(name); !there {
		delete(v.since, name)
		return
	}
	v.since[name] = time.Now()
}

// state returns the content of the watches; false: not all lists have arrived.
func (v *view) state(now time.Time) (state, bool) {
	if !v.nodes.IsSynced() || !v.volumes.IsSynced() || !v.claims.IsSynced() || !v.classes.IsSynced() || !v.capacities.IsSynced() {
		return state{}, false
	}
	s := state{now: now, used: map[string]bool{}, existing: map[string]*storagev1.CSIStorageCapacity{}}
	s.nodes, s.classes = v.nodes.All(), v.classes.All()
	for _, on := range append(v.volumes.All(), v.claims.All()...) {
		s.used[on] = true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.capacities.All() {
		if c.Labels[api.LabelNodeGroup] != "" {
			s.existing[c.Name] = c
			continue
		}
		s.capacities = append(s.capacities, published{
			class: c.StorageClassName, node: nodeOf(c), size: c.Capacity, most: c.MaximumVolumeSize, since: v.since[c.Namespace+"/"+c.Name],
		})
	}
	return s, true
}

// nodeOf returns the node whose capacity csi-provisioner published; "" if the object is another component's.
func nodeOf(c *storagev1.CSIStorageCapacity) string {
	if c.NodeTopology == nil || len(c.NodeTopology.MatchLabels) != 1 || len(c.NodeTopology.MatchExpressions) > 0 {
		return ""
	}
	return c.NodeTopology.MatchLabels[api.TopologyKey]
}

func keepNode(o any) (node, bool) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return node{}, false
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return node{name: n.Name, labels: n.Labels, created: n.CreationTimestamp.Time}, true
		}
	}
	return node{}, false
}

func keepVolume(o any) (string, bool) {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok {
		return "", false
	}
	on := kubeclient.NodeOf(pv)
	return on, on != ""
}

func keepClaim(o any) (string, bool) {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName != "" {
		return "", false
	}
	on := claim.Annotations[api.AnnotationSelectedNode]
	return on, on != ""
}

func keepClass(o any) (class, bool) {
	c, ok := o.(*storagev1.StorageClass)
	if !ok || c.Provisioner != api.DriverName || c.DeletionTimestamp != nil {
		return class{}, false
	}
	return class{name: c.Name, uid: c.UID}, true
}

func keepCapacity(o any) (*storagev1.CSIStorageCapacity, bool) {
	c, ok := o.(*storagev1.CSIStorageCapacity)
	return c, ok
}
