package nodegroup

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// Publisher writes the CSIStorageCapacities of the node groups, and keeps them up to date.
type Publisher struct {
	Client    *kubeclient.Client
	Namespace string  // of all CSIStorageCapacities of the driver
	Groups    []Group // none: the Publisher only deletes the objects of former groups
	Log       *slog.Logger
}

// interval is the time between two comparisons of the existing objects with those that should exist. A Publisher reads from memory,
// and writes only differences.
const interval = 5 * time.Second

// Run works until ctx ends or, without groups, until it has deleted the objects of former ones. Only one Publisher of a cluster may run.
func (p *Publisher) Run(ctx context.Context) {
	if len(p.Groups) == 0 {
		p.deleteAll(ctx)
		return
	}
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

// deleteAll deletes the objects of all node groups. It watches nothing: without groups, nothing creates more of them.
func (p *Publisher) deleteAll(ctx context.Context) {
	for ctx.Err() == nil {
		var list storagev1.CSIStorageCapacityList
		err := p.Client.Storage.Get().Namespace(p.Namespace).Resource(resourceName).Param("labelSelector", ofDriver+","+api.LabelNodeGroup).Do(ctx).Into(&list)
		if err == nil {
			s := state{existing: map[string]*storagev1.CSIStorageCapacity{}}
			for i := range list.Items {
				s.existing[list.Items[i].Name] = &list.Items[i]
			}
			err = p.write(ctx, s)
		}
		if err == nil {
			return
		}
		p.Log.WarnContext(ctx, "cannot delete the capacity of former node groups; will retry", "in", kubeclient.BackoffMost, "error", err)
		kubeclient.Sleep(ctx, kubeclient.BackoffMost)
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

const (
	resourceName = "csistoragecapacities"
	ofDriver     = "csi.storage.k8s.io/drivername=" + api.DriverName // selects all objects of the driver
)

// view has a Publisher's watches.
type view struct {
	client     *kubeclient.Client
	namespace  string
	nodes      *kubeclient.FilteredStore[node]
	volumes    *kubeclient.FilteredStore[string] // by name: the node
	classes    *kubeclient.FilteredStore[class]
	capacities *kubeclient.FilteredStore[*storagev1.CSIStorageCapacity]

	memory memory

	mu   sync.Mutex
	used map[string]bool // nodes that had a volume since the last round
}

func newView(client *kubeclient.Client, namespace string) *view {
	v := &view{client: client, namespace: namespace, used: map[string]bool{}}
	v.nodes = kubeclient.NewFilteredStore(keepNode)
	v.volumes = kubeclient.NewFilteredStore(keepVolume)
	v.classes = kubeclient.NewFilteredStore(keepClass)
	v.capacities = kubeclient.NewFilteredStore(keepCapacity)
	v.volumes.Changed = v.use
	return v
}

func (v *view) watch(ctx context.Context, parts *sync.WaitGroup) {
	core, storage := v.client.Core, v.client.Storage
	parts.Go(func() { kubeclient.Reflect(ctx, core, "nodes", "", &corev1.Node{}, v.nodes) })
	parts.Go(func() {
		kubeclient.Reflect(ctx, core, "persistentvolumes", "", &corev1.PersistentVolume{}, v.volumes)
	})
	parts.Go(func() { kubeclient.Reflect(ctx, storage, "storageclasses", "", &storagev1.StorageClass{}, v.classes) })
	parts.Go(func() {
		kubeclient.ReflectIn(ctx, v.namespace, storage, resourceName, ofDriver, &storagev1.CSIStorageCapacity{}, v.capacities)
	})
}

// use records nodes that have or had a volume, also one that is deleted before the next round.
func (v *view) use(_ string, nodes []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, n := range nodes {
		v.used[n] = true
	}
}

// takeUsed returns the nodes that had a volume since the last round.
func (v *view) takeUsed() map[string]bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	used := v.used
	v.used = map[string]bool{}
	return used
}

// state returns the content of the watches; false: not all lists have arrived.
func (v *view) state(now time.Time) (state, bool) {
	if !v.nodes.IsSynced() || !v.volumes.IsSynced() || !v.classes.IsSynced() || !v.capacities.IsSynced() {
		return state{}, false
	}
	s := state{now: now, nodes: v.nodes.All(), classes: v.classes.All(), existing: map[string]*storagev1.CSIStorageCapacity{}}
	used := v.takeUsed()
	present := map[string]bool{}
	for _, on := range v.volumes.All() {
		present[on], used[on] = true, true
	}
	for i, n := range s.nodes {
		s.nodes[i].used = present[n.name]
	}
	for _, c := range v.capacities.All() {
		if c.Labels[api.LabelNodeGroup] != "" {
			s.existing[c.Name] = c
			continue
		}
		s.published = append(s.published, published{name: c.Name, class: c.StorageClassName, node: nodeOf(c), size: c.Capacity, most: c.MaximumVolumeSize})
	}
	v.memory.observe(&s, used)
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
	return node{
		origin: origin{name: n.Name, created: n.CreationTimestamp.Time, uid: n.UID}, labels: n.Labels,
		machine: n.Name + " " + n.Status.NodeInfo.SystemUUID,
		ready: slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}),
	}, true
}

func keepVolume(o any) (string, bool) {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok {
		return "", false
	}
	on := pending.NodeOf(pv)
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
