package nodegroup

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// Publisher writes the CSIStorageCapacities of the node groups, and keeps them up to date.
type Publisher struct {
	Clientset kubernetes.Interface
	Namespace string  // of all CSIStorageCapacities of the driver
	Groups    []Group // none: the Publisher only deletes the objects of former groups
	Log       *slog.Logger
}

// interval is the time between two comparisons of the existing objects with those that should exist. A Publisher reads from memory,
// and writes only differences.
const interval = 5 * time.Second

// Run works until ctx ends or, without groups, until it has deleted the objects of former ones. Objects.Run must run it. Only one
// Publisher of a cluster may run.
func (p *Publisher) Run(ctx context.Context, objects *cluster.Objects) {
	v := newView()
	if len(p.Groups) > 0 {
		objects.Volumes.OnChange(v.use)
	}
	for ctx.Err() == nil {
		if f, known := factsIn(objects); known {
			s := v.state(f, time.Now())
			if err := p.write(ctx, s); err != nil && ctx.Err() == nil {
				p.Log.WarnContext(ctx, "cannot publish the capacity of node groups; will retry", "in", kubeclient.BackoffMost, "error", err)
				kubeclient.Sleep(ctx, kubeclient.BackoffMost)
			} else if len(p.Groups) == 0 {
				return // nothing creates more objects of node groups
			}
		}
		kubeclient.Sleep(ctx, interval)
	}
}

// write creates, updates and deletes objects until those of the node groups are right.
func (p *Publisher) write(ctx context.Context, s state) error {
	wanted := templates(p.Groups, s, p.Namespace)
	client := p.Clientset.StorageV1().CSIStorageCapacities(p.Namespace)
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
			_, err := client.Create(ctx, o, metav1.CreateOptions{})
			request(o, "created", err)
		case !isSame(was, o):
			o.ResourceVersion = was.ResourceVersion
			_, err := client.Update(ctx, o, metav1.UpdateOptions{})
			request(o, "updated", err)
		}
	}
	for name, o := range s.existing {
		if wanted[name] == nil {
			request(o, "deleted", client.Delete(ctx, name, metav1.DeleteOptions{}))
		}
	}
	return all
}

// facts are those that a Publisher decides from. None is about a claim: a tenant can write any node into one.
type facts struct {
	nodes      iter.Seq[*corev1.Node]
	volumes    iter.Seq[*cluster.Volume]
	classes    iter.Seq[*storagev1.StorageClass]
	capacities iter.Seq[*cluster.Capacity]
}

// factsIn returns the facts in memory; false: not all lists have arrived.
func factsIn(o *cluster.Objects) (facts, bool) {
	return facts{o.Nodes.Each, o.Volumes.Each, o.Classes.Each, o.Capacities.Each},
		o.Nodes.IsSynced() && o.Volumes.IsSynced() && o.Classes.IsSynced() && o.Capacities.IsSynced()
}

// view is what a Publisher remembers from round to round.
type view struct {
	memory memory

	mu   sync.Mutex
	used map[string]bool // nodes that had a volume since the last round
}

func newView() *view { return &view{used: map[string]bool{}} }

// use records nodes that have or had a volume, also one that is deleted before the next round.
func (v *view) use(was, now *cluster.Volume) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, volume := range []*cluster.Volume{was, now} {
		if volume != nil && volume.Node != "" {
			v.used[volume.Node] = true
		}
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

// state returns what a round of the Publisher decides from.
func (v *view) state(f facts, now time.Time) state {
	s := state{now: now, existing: map[string]*storagev1.CSIStorageCapacity{}}
	used := v.takeUsed()
	present := map[string]bool{}
	for volume := range f.volumes {
		present[volume.Node], used[volume.Node] = true, true
	}
	for n := range f.nodes {
		s.nodes = append(s.nodes, nodeOf(n, present[n.Name]))
	}
	for c := range f.classes {
		if c.Provisioner == api.DriverName && c.DeletionTimestamp == nil {
			s.classes = append(s.classes, class{name: c.Name, uid: c.UID})
		}
	}
	for c := range f.capacities {
		if c.Group != nil {
			s.existing[c.Name] = c.Group
		} else if c.Node != "" {
			s.published = append(s.published, published{name: c.Name, class: c.Class, node: c.Node, size: c.Size, most: c.Most})
		}
	}
	v.memory.observe(&s, used)
	return s
}

func nodeOf(n *corev1.Node, used bool) node {
	return node{
		origin: origin{name: n.Name, created: n.CreationTimestamp.Time, uid: n.UID}, labels: n.Labels, used: used,
		machine: n.Name + " " + n.Status.NodeInfo.SystemUUID,
		ready: slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}),
	}
}
