package kube

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// filteredStore keeps the objects of a watch that matter, in the form that keep returns, by the object's key.
type filteredStore[T any] struct {
	key     func(o any) (key string, ok bool)
	keep    func(o any) (T, bool)       // false: the object does not matter
	strip   func(o any) any             // drops fields of each object before the reflector collects a list; the kind stays
	changed func(key string, items []T) // called without the lock, with the former and the present item

	mu     sync.Mutex
	items  map[string]T
	synced bool // a complete list has arrived
}

func (s *filteredStore[T]) Add(o any) error {
	key, ok := s.key(o)
	if !ok {
		return nil
	}
	s.mu.Lock()
	versions := s.put(key, o)
	s.mu.Unlock()
	s.tell(key, versions)
	return nil
}

func (s *filteredStore[T]) Update(o any) error { return s.Add(o) }

func (s *filteredStore[T]) Delete(o any) error {
	key, ok := s.key(last(o))
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

// Replace takes a complete list and drops the objects that are not in it.
func (s *filteredStore[T]) Replace(list []any, _ string) error {
	changes := map[string][]T{}
	s.mu.Lock()
	gone := s.items
	s.items, s.synced = map[string]T{}, true
	for _, o := range list {
		if key, ok := s.key(o); ok {
			changes[key] = s.put(key, o)
		}
	}
	for key, was := range gone {
		changes[key] = append(changes[key], was)
	}
	s.mu.Unlock()
	for key, versions := range changes {
		s.tell(key, versions)
	}
	return nil
}

func (s *filteredStore[T]) Resync() error { return nil }

// Transformer strips each object before the reflector collects a list.
func (s *filteredStore[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.strip(o), nil }
}

// put stores an object and returns its former and present items.
func (s *filteredStore[T]) put(key string, o any) (versions []T) {
	if was, there := s.items[key]; there {
		versions = append(versions, was)
	}
	delete(s.items, key)
	if now, matters := s.keep(o); matters {
		if s.items == nil {
			s.items = map[string]T{}
		}
		s.items[key] = now
		versions = append(versions, now)
	}
	return versions
}

func (s *filteredStore[T]) tell(key string, versions []T) {
	if len(versions) > 0 {
		s.changed(key, versions)
	}
}

// find returns the item of an object; known is false until a complete list has arrived.
func (s *filteredStore[T]) find(key string) (item T, there, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	item, there = s.items[key]
	return item, there, s.synced
}

// isSynced reports whether a complete list has arrived.
func (s *filteredStore[T]) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// keys lists the keys of the objects that which selects.
func (s *filteredStore[T]) keys(which func(T) bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(s.items)) {
		if which(s.items[key]) {
			keys = append(keys, key)
		}
	}
	return keys
}
