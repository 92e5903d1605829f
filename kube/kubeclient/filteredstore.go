package kubeclient

import (
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// FilteredStore keeps the objects of a watch that matter, in the form that keep returns, by the object's key.
type FilteredStore[T any] struct {
	Key     func(o any) (Key string, ok bool)
	Keep    func(o any) (T, bool)       // false: the object does not matter
	Strip   func(o any) any             // drops fields of each object, in a list before the reflector collects it; the kind stays. nil: none
	Changed func(key string, items []T) // called without the lock, with the former and the present item

	mu     sync.Mutex
	items  map[string]T
	synced bool // a complete list has arrived
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
	if s.Strip != nil { // the reflector strips only lists
		o = s.Strip(o)
	}
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

// Items returns the items that which selects, in the order of their keys.
func (s *FilteredStore[T]) Items(which func(T) bool) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for key, item := range s.items {
		if which(item) {
			keys = append(keys, key) // few of many thousand: sorted only now
		}
	}
	slices.Sort(keys)
	var items []T
	for _, key := range keys {
		items = append(items, s.items[key])
	}
	return items
}

// returnAfter is the number of objects in a list from which the process returns memory to the kernel, and listDropped the time
// after which the reflector has dropped the list.
const (
	returnAfter = 1000
	listDropped = time.Second
)

// memoryReturner returns memory to the kernel after a long list. A list of all claims of a large cluster leaves garbage of many times the
// driver's memory, which the Go runtime would keep for minutes.
type memoryReturner struct{ cache.TransformingStore }

func (s memoryReturner) Replace(list []any, version string) error {
	err := s.TransformingStore.Replace(list, version)
	if len(list) >= returnAfter {
		time.AfterFunc(listDropped, debug.FreeOSMemory)
	}
	return err
}
