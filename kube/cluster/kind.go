package cluster

import (
	"cmp"
	"iter"
	"slices"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// Kind has the facts about all objects of a kind. An item is not to be changed.
type Kind[T metav1.ObjectMetaAccessor] struct {
	informer cache.SharedIndexInformer
	isAbsent atomic.Bool // the cluster does not have this kind
}

// byNode is the name of the index by node.
const byNode = "node"

// index adds the index by node. It does not hold the items for which nodeOf returns "".
func (k *Kind[T]) index(nodeOf func(T) string) {
	utilruntime.Must(k.informer.AddIndexers(cache.Indexers{byNode: func(o any) ([]string, error) {
		if item, ok := o.(T); ok && nodeOf(item) != "" {
			return []string{nodeOf(item)}, nil
		}
		return nil, nil
	}})) // it fails only for an informer that has stopped, or a second index of this name
}

// IsSynced reports whether a complete list has arrived.
func (k *Kind[T]) IsSynced() bool { return k.isAbsent.Load() || k.informer.HasSynced() }

// Find returns the item of an object by its name or namespace/name; false: it does not exist, as far as is known.
func (k *Kind[T]) Find(key string) (item T, there bool) {
	o, _, _ := k.informer.GetIndexer().GetByKey(key) // this store returns no errors
	item, there = o.(T)
	return item, there
}

// Each yields all items, in no order.
func (k *Kind[T]) Each(yield func(T) bool) {
	for _, o := range k.informer.GetIndexer().List() {
		if item, ok := o.(T); ok && !yield(item) {
			return
		}
	}
}

// All returns all items, in the order of their namespaces and names.
func (k *Kind[T]) All() []T { return inOrder(k.Each) }

// On returns the items of a node, in the order of their namespaces and names.
func (k *Kind[T]) On(node string) []T {
	return inOrder(func(yield func(T) bool) {
		objects, _ := k.informer.GetIndexer().ByIndex(byNode, node) // the index exists
		for _, o := range objects {
			if item, ok := o.(T); ok && !yield(item) {
				return
			}
		}
	})
}

func inOrder[T metav1.ObjectMetaAccessor](items iter.Seq[T]) []T {
	return slices.SortedFunc(items, func(a, b T) int {
		x, y := a.GetObjectMeta(), b.GetObjectMeta()
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
}

// OnChange calls a function with the former and the present item of each object that appears, changes or disappears, and first with
// all that exist; the zero value: there is none. After the end of the watches it does nothing.
func (k *Kind[T]) OnChange(changed func(was, now T)) {
	var none T
	item := func(o any) T {
		t, _ := kubeclient.Last(o).(T)
		return t
	}
	_, _ = k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // it fails only for an informer that has stopped
		AddFunc:    func(o any) { changed(none, item(o)) },
		UpdateFunc: func(was, now any) { changed(item(was), item(now)) },
		DeleteFunc: func(o any) { changed(item(o), none) },
	})
}
