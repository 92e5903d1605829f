package claimevents

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
	"github.com/nodelvm/nodelvm/report"
)

// view has a Reporter's watches.
type view struct {
	nodes      *kubeclient.FilteredStore[corev1.Node]
	claims     *kubeclient.FilteredStore[corev1.PersistentVolumeClaim] // without a volume
	classes    *kubeclient.FilteredStore[storagev1.StorageClass]
	capacities *kubeclient.FilteredStore[capacity]
}

// capacity is a CSIStorageCapacity of this driver.
type capacity struct {
	node, class string
	all, most   lvm.Bytes // of all volumes together, and of one
}

func newView() *view {
	return &view{nodes: kubeclient.NewFilteredStore(keepNode), claims: kubeclient.NewFilteredStore(keepClaim), classes: kubeclient.NewFilteredStore(keepClass), capacities: kubeclient.NewFilteredStore(keepCapacity)}
}

func (v *view) watch(ctx context.Context, client *kubeclient.Client, namespace string, parts *sync.WaitGroup) {
	parts.Go(func() { kubeclient.Reflect(ctx, client.Core, "nodes", "", &corev1.Node{}, v.nodes) })
	parts.Go(func() {
		kubeclient.Reflect(ctx, client.Core, "persistentvolumeclaims", "", &corev1.PersistentVolumeClaim{}, v.claims)
	})
	parts.Go(func() {
		kubeclient.Reflect(ctx, client.Storage, "storageclasses", "", &storagev1.StorageClass{}, v.classes)
	})
	parts.Go(func() {
		kubeclient.ReflectIn(ctx, namespace, client.Storage, "csistoragecapacities", "csi.storage.k8s.io/drivername="+api.DriverName,
			&storagev1.CSIStorageCapacity{}, v.capacities)
	})
}

// state returns the content of the watches; false: not all lists have arrived.
func (v *view) state(now time.Time) (state, bool) {
	if !v.nodes.IsSynced() || !v.claims.IsSynced() || !v.classes.IsSynced() || !v.capacities.IsSynced() {
		return state{}, false
	}
	s := state{now: now, nodes: v.nodes.All(), claims: v.claims.All(), classes: v.classes.All(), capacities: v.capacities.All()}
	slices.SortFunc(s.nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.claims, func(a, b corev1.PersistentVolumeClaim) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return s, true
}

// state is a snapshot of all that a Reporter decides from, except pods.
type state struct {
	now        time.Time
	nodes      []corev1.Node
	claims     []corev1.PersistentVolumeClaim // the oldest first
	classes    []storagev1.StorageClass
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
		n := pending.Node{Node: node, Silent: "nodelvm publishes no capacity for the class there"}
		if c, there := published[node.Labels[api.TopologyKey]]; there {
			n.Silent, n.Offers = "", []report.Offer{{Available: c.all, Largest: c.most}}
		}
		list = append(list, n)
	}
	return list
}

func keepNode(o any) (corev1.Node, bool) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return corev1.Node{}, false
	}
	kept := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}, Spec: corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable}}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = append(kept.Status.Conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status, Message: c.Message})
		}
	}
	return kept, true
}

// keepClaim keeps the claims that wait, and none that csi-provisioner does not get for its size.
func keepClaim(o any) (corev1.PersistentVolumeClaim, bool) {
	c, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok || c.Size() > api.MaxObject || c.Spec.VolumeName != "" || c.DeletionTimestamp != nil || kubeclient.ClassOf(c) == "" {
		return corev1.PersistentVolumeClaim{}, false
	}
	return *c, true
}

func keepClass(o any) (storagev1.StorageClass, bool) {
	c, ok := o.(*storagev1.StorageClass)
	if !ok || c.Provisioner != api.DriverName || c.DeletionTimestamp != nil {
		return storagev1.StorageClass{}, false
	}
	return *c, true
}

// keepCapacity ignores the capacity of node groups: their nodes do not exist.
func keepCapacity(o any) (capacity, bool) {
	c, ok := o.(*storagev1.CSIStorageCapacity)
	if !ok || c.NodeTopology == nil || c.Labels[api.LabelNodeGroup] != "" || c.NodeTopology.MatchLabels[api.TopologyKey] == "" {
		return capacity{}, false
	}
	kept := capacity{node: c.NodeTopology.MatchLabels[api.TopologyKey], class: c.StorageClassName}
	if c.Capacity != nil {
		kept.all = lvm.Bytes(c.Capacity.Value())
	}
	kept.most = kept.all
	if c.MaximumVolumeSize != nil {
		kept.most = lvm.Bytes(c.MaximumVolumeSize.Value())
	}
	return kept, true
}
