package apiproxy

import "sync"

// sources has the claims from which clones on this node wait to be copied. csi-provisioner has them in its cache, wherever they are
// bound, and must not lose one before it has read it: its finalizer marks a source only after that. Keys are namespace/name.
type sources struct {
	mu   sync.Mutex
	of   map[string]string // by clone
	uses map[string]int    // clones by source
}

// set records the source of a clone; "": it waits for none.
func (s *sources) set(clone, source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.of[clone]; before != "" {
		delete(s.of, clone)
		if s.uses[before]--; s.uses[before] == 0 {
			delete(s.uses, before)
		}
	}
	if source == "" {
		return
	}
	if s.of == nil {
		s.of, s.uses = map[string]string{}, map[string]int{}
	}
	s.of[clone] = source
	s.uses[source]++
}

// has reports whether a clone waits for the claim.
func (s *sources) has(claim string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uses[claim] > 0
}

// clear forgets all clones: a list follows, which may lack some.
func (s *sources) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of, s.uses = nil, nil
}
