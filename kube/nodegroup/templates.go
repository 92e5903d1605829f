package nodegroup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
)

// settled is how long a node's capacity must not change before a group learns it. The watches of capacity and of claims are not
// ordered: the capacity that a new volume leaves may arrive before the claim that shows that the node is in use.
const settled = 30 * time.Second

// node is a Ready node.
type node struct {
	name    string
	labels  map[string]string
	created time.Time
}

// published is a capacity that csi-provisioner published for a node.
type published struct {
	class, node string
	size, most  *resource.Quantity
	since       time.Time // when this process first saw it
}

// class is a storage class of this driver.
type class struct {
	name string
	uid  types.UID
}

// state is the content of the watches.
type state struct {
	now        time.Time
	nodes      []node
	used       map[string]bool // nodes with a volume, or with a claim that waits for one
	capacities []published
	classes    []class
	existing   map[string]*storagev1.CSIStorageCapacity // by name: those of the node groups
}

// templates returns the objects that should exist, by name.
func templates(groups []Group, s state, namespace string) map[string]*storagev1.CSIStorageCapacity {
	wanted := map[string]*storagev1.CSIStorageCapacity{}
	for _, g := range groups {
		for _, c := range s.classes {
			o := template(g, c, namespace)
			if size, declared := g.Capacity[c.name]; declared {
				o.Capacity, o.MaximumVolumeSize = &size, &size
			} else if p, learned := s.learn(g, c.name); learned {
				o.Capacity, o.MaximumVolumeSize = p.size, p.most
			} else if was := s.existing[o.Name]; was != nil {
				o.Capacity, o.MaximumVolumeSize = was.Capacity, was.MaximumVolumeSize
			} else {
				continue
			}
			wanted[o.Name] = o
		}
	}
	return wanted
}

// template returns the object of a group and a class, without a capacity. Its topology and class are immutable, so its name depends
// on them.
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

// learn returns the capacity of the group's newest empty node that has any: the next node is most likely like it. If no empty node
// has any, learn assumes that the next one has none either.
func (s state) learn(g Group, class string) (found published, learned bool) {
	var newest time.Time
	for _, n := range s.nodes {
		if s.used[n.name] || !isSubset(g.Labels, n.labels) {
			continue
		}
		for _, p := range s.capacities {
			if p.class != class || p.node != n.name || p.size == nil || s.now.Sub(p.since) < settled {
				continue
			}
			better := !p.size.IsZero() && n.created.After(newest)
			if better {
				newest = n.created
			}
			if better || !learned {
				found, learned = p, true
			}
		}
	}
	return found, learned
}

func isSubset(some, all map[string]string) bool {
	for key, value := range some {
		if got, ok := all[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// isSame reports whether a written object needs no update. No other field of it can change.
func isSame(a, b *storagev1.CSIStorageCapacity) bool {
	return isEqual(a.Capacity, b.Capacity) && isEqual(a.MaximumVolumeSize, b.MaximumVolumeSize)
}

func isEqual(a, b *resource.Quantity) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Cmp(*b) == 0
}
