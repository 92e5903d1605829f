package nodegroup

import (
	"cmp"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
)

// A node publishes what is free. A new node has more than that while volumes, snapshots or orphans are on the node, while the driver
// wipes a deleted volume or keeps an empty thin pool, and before it has found all disks. None of this is known here. So what a node
// publishes is a lower bound, and a learned capacity only grows, except if a new node without a volume publishes less for long.

const (
	// settled is how long a node's capacity must not change before a group learns it. The capacity that a new volume leaves may arrive before
	// the PersistentVolume that shows that the node is in use. A claim shows nothing: a tenant can write any node into it.
	settled = 30 * time.Second

	// steady is how long a new node's capacity must not change before it lowers that of its group. It is longer than the default
	// interval of the driver's scans, which may find a disk that appears late.
	steady = 7 * time.Minute
)

// published is a capacity that csi-provisioner published for a node.
type published struct {
	name        string // of the object
	class, node string
	size, most  *resource.Quantity
	since       time.Time // when this process first saw it as it is
}

// largest returns the size of the largest volume, which the scheduler and cluster-autoscaler compare with a claim's.
func largest(size, most *resource.Quantity) *resource.Quantity {
	if most != nil {
		return most
	}
	return size
}

// origin is the new node that a capacity was learned from. Older nodes do not change that capacity any more: the next node is most
// likely like the newest, and a captured node cannot raise the capacity again and again. The zero value is older than any node.
type origin struct {
	name    string
	created time.Time
	uid     types.UID
}

// compare orders nodes by age, the oldest first.
func (o origin) compare(other origin) int {
	return cmp.Or(o.created.Compare(other.created), cmp.Compare(o.uid, other.uid))
}

// String returns the value of api.AnnotationLearnedFrom.
func (o origin) String() string {
	if o == (origin{}) {
		return ""
	}
	return strings.Join([]string{o.name, o.created.UTC().Format(time.RFC3339), string(o.uid)}, " ")
}

// parseOrigin returns the zero value for a text that String does not write.
func parseOrigin(text string) origin {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return origin{}
	}
	created, err := time.Parse(time.RFC3339, fields[1])
	if err != nil {
		return origin{}
	}
	return origin{name: fields[0], created: created, uid: types.UID(fields[2])}
}

// learned is a capacity that a group has learned for a class.
type learned struct {
	size, most *resource.Quantity
	from       origin // zero: it was not learned from a new node, and any node of the group may raise it
}

// learnedOf returns what a group has learned until now; nil: nothing, or its capacity was declared.
func learnedOf(o *storagev1.CSIStorageCapacity) *learned {
	if o == nil || o.Capacity == nil {
		return nil
	}
	from, isLearned := o.Annotations[api.AnnotationLearnedFrom]
	if !isLearned {
		return nil
	}
	return &learned{size: o.Capacity, most: o.MaximumVolumeSize, from: parseOrigin(from)}
}

// learn returns what a group has learned for a class, given what it had learned before. The nodes are those of the group, the oldest
// first; capacities are those of the class, by node. nil: nothing.
func learn(was *learned, nodes []node, capacities map[string]published, now time.Time) *learned {
	for _, n := range nodes {
		if p, there := capacities[n.name]; there && now.Sub(p.since) >= settled {
			was = was.after(n, p, now)
		}
	}
	return was
}

// after returns what a group has learned after a node. A node that has nothing lowers no capacity: its disks may not be prepared.
func (l *learned) after(n node, p published, now time.Time) *learned {
	most := largest(p.size, p.most)
	if l == nil {
		if n.used {
			return nil
		}
		l = &learned{size: p.size, most: p.most}
	}
	age := n.compare(l.from)
	switch {
	case age > 0 && n.isNew && !most.IsZero() && now.Sub(p.since) >= steady:
		return &learned{p.size, p.most, n.origin}
	case age >= 0 && pending.BytesOf(most) > pending.BytesOf(largest(l.size, l.most)):
		if l.from == (origin{}) {
			return &learned{size: p.size, most: p.most}
		}
		return &learned{p.size, p.most, n.origin}
	}
	return l
}
