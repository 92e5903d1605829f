package claimevents

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
	"github.com/nodelvm/nodelvm/report"
)

// capacity is what a node offers for a class.
type capacity struct {
	node, class string
	all, most   lvm.Bytes // of all volumes together, and of one
}

// stateOf returns the facts that a Reporter decides from; false: not all lists have arrived.
func stateOf(o *cluster.Objects, now time.Time) (state, bool) {
	if !o.Nodes.IsSynced() || !o.Claims.IsSynced() || !o.Classes.IsSynced() || !o.Capacities.IsSynced() {
		return state{}, false
	}
	s := state{now: now, nodes: o.Nodes.All()}
	for c := range o.Claims.Each {
		if c.Waiting != nil {
			s.claims = append(s.claims, c.Waiting)
		}
	}
	slices.SortFunc(s.claims, func(a, b *corev1.PersistentVolumeClaim) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(kubeclient.KeyOf(a), kubeclient.KeyOf(b)))
	})
	for _, c := range o.Classes.All() {
		if c.Provisioner == api.DriverName && c.DeletionTimestamp == nil {
			s.classes = append(s.classes, c)
		}
	}
	for c := range o.Capacities.Each {
		if c.Node != "" {
			s.capacities = append(s.capacities, capacityOf(c))
		}
	}
	return s, true
}

func capacityOf(c *cluster.Capacity) capacity {
	kept := capacity{node: c.Node, class: c.Class}
	if c.Size != nil {
		kept.all = pending.BytesOf(c.Size)
	}
	kept.most = kept.all
	if c.Most != nil {
		kept.most = pending.BytesOf(c.Most)
	}
	return kept
}

// state is a snapshot of all that a Reporter decides from, except pods.
type state struct {
	now        time.Time
	nodes      []*corev1.Node
	claims     []*corev1.PersistentVolumeClaim // the oldest first
	classes    []*storagev1.StorageClass
	capacities []capacity
}

// nodesFor returns the nodes with their published capacity for a class.
func (s state) nodesFor(class string) (list []pending.Node) {
	published := map[string]capacity{}
	for _, c := range s.capacities {
		if c.class == class {
			published[c.node] = c
		}
	}
	for _, node := range s.nodes {
		n := pending.Node{Node: *node, NoVolumes: "nodelvm publishes no capacity for the class there"}
		if c, there := published[node.Labels[api.TopologyKey]]; there {
			n.NoVolumes, n.Offers = "", []report.Offer{{Available: c.all, Largest: c.most}}
		}
		list = append(list, n)
	}
	return list
}
