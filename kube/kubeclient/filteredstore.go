package kubeclient

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// FilteredStore keeps the objects of a watch that matter, in the form that keep returns, by the object's key.
type FilteredStore[T any] struct {
	Key     func(o any) (Key string, ok bool)
	Keep    func(o any) (T, bool)       // false: the object does not matter
	Strip   func(o any) any             // drops fields of each object before the reflector collects a list; the kind stays
	Changed func(key string, items []T) // called without the lock, with the former and the present item

	mu     sync.Mutex
	items  map[string]T
	synced bool // a complete list has arrived
}

// NewFilteredStore returns a store for a loop that reads it in rounds: it calls nothing on a change, and strips the managed fields,
// the largest part of most objects.
func NewFilteredStore[T any](keep func(o any) (T, bool)) *FilteredStore[T] {
	return &FilteredStore[T]{Key: KeyOfObject, Keep: keep, Strip: stripManagedFields, Changed: func(string, []T) {}}
}

func stripManagedFields(o any) any {
	if object, ok := o.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return o
}

func (s *FilteredStore[T]) Add(o any) error {
	key, ok := s.Key(o)
	if !ok {
		return nil
	}
	s.mu.Lock()
	versions := s.put(key, o)
	s.mu.Unlock()
	s.tell(key, versions)
	return nil
}

func (s *FilteredStore[T]) Update(o any) error { return s.Add(o) }

func (s *FilteredStore[T]) Delete(o any) error {
	key, ok := s.Key(Last(o))
	if !ok {
		return nil
	}
	s.mu.Lock()
	was, there := s.items[key]
	delete(s.items, key)
	s.mu.Unlock()
	if there {
		s.tell(key, []T{was})
	}
	return nil
}

// Replace stores a complete list and drops the objects that are not in it.
func (s *FilteredStore[T]) Replace(list []any, _ string) error {
	changes := map[string][]T{}
	s.mu.Lock()
	gone := s.items
	s.items, s.synced = map[string]T{}, true
	for _, o := range list {
		if key, ok := s.Key(o); ok {
			changes[key] = s.put(key, o)
		}
	}
	for key, was := range gone {
		changes[key] = slices.Insert(changes[key], 0, was)
	}
	s.mu.Unlock()
	for key, versions := range changes {
		s.tell(key, versions)
	}
	return nil
}

func (s *FilteredStore[T]) Resync() error { return nil }

// Transformer strips each object before the reflector collects a list.
func (s *FilteredStore[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.Strip(o), nil }
}

// put stores an object and returns its former and present items.
func (s *FilteredStore[T]) put(key string, o any) (versions []T) {
	if was, there := s.items[key]; there {
		versions = append(versions, was)
	}
	delete(s.items, key)
	if now, matters := s.Keep(o); matters {
		if s.items == nil {
			s.items = map[string]T{}
		}
		s.items[key] = now
		versions = append(versions, now)
	}
	return versions
}

func (s *FilteredStore[T]) tell(key string, versions []T) {
	if len(versions) > 0 {
		s.Changed(key, versions)
	}
}

// Find returns the item of an object; known is false until a complete list has arrived.
func (s *FilteredStore[T]) Find(key string) (item T, there, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	item, there = s.items[key]
	return item, there, s.synced
}

// IsSynced reports whether a complete list has arrived.
func (s *FilteredStore[T]) IsSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// All returns all items, in the order of their keys.
func (s *FilteredStore[T]) All() []T { return s.Items(func(T) bool { return true }) }

// Items returns the items that which selects, in the order of their keys.
func (s *FilteredStore[T]) Items(which func(T) bool) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []T
	for _, key := range s.selected(which) {
		items = append(items, s.items[key])
	}
	return items
}

// Keys returns the keys of the objects that which selects, in their order.
func (s *FilteredStore[T]) Keys(which func(T) bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.selected(which)
}

// selected filters before it sorts: of many thousand objects, which mostly selects a few.
func (s *FilteredStore[T]) selected(which func(T) bool) []string {
	var keys []string
	for key, item := range s.items {
		if which(item) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Each yields all items, in no order. It holds the lock meanwhile: the loop must not use the store.
func (s *FilteredStore[T]) Each(yield func(T) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range s.items {
		if !yield(item) {
			return
		}
	}
}
