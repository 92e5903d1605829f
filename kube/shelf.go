package kube

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// shelf is what a watch leaves in memory: of each object that matters, what keep makes of it, by the object's key.
type shelf[T any] struct {
	key     func(o any) (key string, ok bool)
	keep    func(o any) (T, bool)       // false: it does not matter
	strip   func(o any) any             // before a listing is gathered: the same kind with less in it
	changed func(key string, items []T) // called without the lock: what it was, and what it is now

	mu     sync.Mutex
	items  map[string]T
	synced bool // a whole listing has been seen
}

func (s *shelf[T]) Add(o any) error {
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

func (s *shelf[T]) Update(o any) error { return s.Add(o) }

func (s *shelf[T]) Delete(o any) error {
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

// Replace takes a whole listing: what is not in it is gone.
func (s *shelf[T]) Replace(list []any, _ string) error {
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

func (s *shelf[T]) Resync() error { return nil }

// Transformer strips objects before a listing is gathered.
func (s *shelf[T]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.strip(o), nil }
}

// put sorts an object in, and answers what it was and what it is now.
func (s *shelf[T]) put(key string, o any) (versions []T) {
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

func (s *shelf[T]) tell(key string, versions []T) {
	if len(versions) > 0 {
		s.changed(key, versions)
	}
}

// find answers what is kept of an object; known is false until a whole listing has been seen.
func (s *shelf[T]) find(key string) (item T, there, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	item, there = s.items[key]
	return item, there, s.synced
}

// isSynced tells whether a whole listing has been seen.
func (s *shelf[T]) isSynced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// keys lists the objects that which picks.
func (s *shelf[T]) keys(which func(T) bool) []string {
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
