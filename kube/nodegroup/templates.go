package nodegroup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
)

// node is a node of the cluster.
type node struct {
	origin
	labels  map[string]string
	machine string // its name and the UUID of the machine: those of a Node that registers again
	ready   bool
	used    bool // it has a volume
	isNew   bool // this process has seen its machine since its first registration, and never with a volume
}

// class is a storage class of this driver.
type class struct {
	name string
	uid  types.UID
}

// state is the content of the watches.
type state struct {
	now       time.Time
	nodes     []node
	published []published
	classes   []class
	existing  map[string]*storagev1.CSIStorageCapacity // by name: those of the node groups
}

// templates returns the objects that should exist, by name.
func templates(groups []Group, s state, namespace string) map[string]*storagev1.CSIStorageCapacity {
	wanted := map[string]*storagev1.CSIStorageCapacity{}
	capacities := s.byClass()
	for _, g := range groups {
		nodes := s.members(g)
		for _, c := range s.classes {
			o := template(g, c, namespace)
			was := s.existing[o.Name]
			if size, declared := g.Capacity[c.name]; declared {
				o.Capacity, o.MaximumVolumeSize = &size, &size
			} else if l := learn(learnedOf(was), nodes, capacities[c.name], s.now); l != nil {
				o.Capacity, o.MaximumVolumeSize = l.size, l.most
				o.Annotations = map[string]string{api.AnnotationLearnedFrom: l.from.String()}
			} else if was != nil { // its capacity was declared, and there is none to learn yet
				o.Capacity, o.MaximumVolumeSize = was.Capacity, was.MaximumVolumeSize
			} else {
				continue
			}
			wanted[o.Name] = o
		}
	}
	return wanted
}

// byClass returns the capacity of each node, by class and node. Of two objects, one of which is about to be deleted, it takes the
// larger: a node's capacity is a lower bound.
func (s state) byClass() map[string]map[string]published {
	index := map[string]map[string]published{}
	for _, p := range s.published {
		if p.size == nil {
			continue
		}
		if index[p.class] == nil {
			index[p.class] = map[string]published{}
		}
		other, there := index[p.class][p.node]
		if !there || pending.BytesOf(largest(p.size, p.most)) > pending.BytesOf(largest(other.size, other.most)) {
			index[p.class][p.node] = p
		}
	}
	return index
}

// members returns the group's Ready nodes, the oldest first.
func (s state) members(g Group) (list []node) {
	for _, n := range s.nodes {
		if n.ready && isSubset(g.Labels, n.labels) {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b node) int { return a.compare(b.origin) })
	return list
}

// template returns the object of a group and a class, without a capacity. Its topology and class are immutable, so its name depends
// on them. It does not depend on the group's name: a renamed group keeps what it has learned.
func template(g Group, c class, namespace string) *storagev1.CSIStorageCapacity {
	labels := maps.Clone(g.Labels)
	labels[api.LabelTemplateNode] = "true"
	text, _ := json.Marshal([]any{c.name, c.uid, labels}) // only of strings
	sum := sha256.Sum256(text)
	return &storagev1.CSIStorageCapacity{
		TypeMeta: metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "CSIStorageCapacity"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "nodelvm-template-" + hex.EncodeToString(sum[:8]), Namespace: namespace,
			Labels: map[string]string{"csi.storage.k8s.io/drivername": api.DriverName, api.LabelNodeGroup: g.Name},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass", Name: c.name, UID: c.uid},
			},
		},
		NodeTopology:     &metav1.LabelSelector{MatchLabels: labels},
		StorageClassName: c.name,
	}
}

func isSubset(some, all map[string]string) bool {
	for key, value := range some {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// isSame reports whether an object needs no update.
func isSame(was, wanted *storagev1.CSIStorageCapacity) bool {
	return isEqual(was.Capacity, wanted.Capacity) && isEqual(was.MaximumVolumeSize, wanted.MaximumVolumeSize) &&
		maps.Equal(was.Labels, wanted.Labels) && maps.Equal(was.Annotations, wanted.Annotations)
}

func isEqual(a, b *resource.Quantity) bool {
	return a == nil && b == nil || a != nil && b != nil && pending.BytesOf(a) == pending.BytesOf(b)
}
