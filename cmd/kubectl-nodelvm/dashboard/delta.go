package dashboard

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"sync"
)

// batchNodes limits the nodes in one event of the stream.
const batchNodes = 50

// state is the current model. A watcher keeps the names of nodes that changed since its last read, not the changes: a slow page
// costs no memory, and misses only values that were replaced meanwhile.
type state struct {
	mu       sync.Mutex
	nodes    map[string]json.RawMessage
	status   json.RawMessage
	watchers map[*watcher]bool
	open     chan struct{} // closed while there is a watcher
}

// watcher is one open page.
type watcher struct {
	changed map[string]bool // names of nodes
	status  bool
	wake    chan struct{}
}

func newState() *state {
	return &state{nodes: map[string]json.RawMessage{}, watchers: map[*watcher]bool{}, open: make(chan struct{})}
}

func (s *state) watched() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// watch adds a watcher, which first gets the whole model; ok is false if too many pages are open.
func (s *state) watch() (w *watcher, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) >= maxStreams {
		return nil, false
	}
	w = &watcher{changed: map[string]bool{}, status: s.status != nil, wake: make(chan struct{}, 1)}
	for name := range s.nodes {
		w.changed[name] = true
	}
	if len(s.watchers) == 0 {
		close(s.open)
	}
	s.watchers[w] = true
	w.signal()
	return w, true
}

func (s *state) unwatch(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
	if len(s.watchers) == 0 {
		s.open = make(chan struct{})
	}
}

func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// set replaces a node if it differs.
func (s *state) set(node Node) {
	document, err := json.Marshal(node)
	if err != nil {
		panic(err) // the model has no type that can fail
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.nodes[node.Name], document) {
		return
	}
	s.nodes[node.Name] = document
	s.mark(node.Name)
}

func (s *state) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name = text(name)
	if _, known := s.nodes[name]; known {
		delete(s.nodes, name)
		s.mark(name)
	}
}

func (s *state) mark(name string) {
	for w := range s.watchers {
		w.changed[name] = true
		w.signal()
	}
}

func (s *state) setStatus(status Status) {
	document, err := json.Marshal(status)
	if err != nil {
		panic(err) // the model has no type that can fail
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = document
	for w := range s.watchers {
		w.status = true
		w.signal()
	}
}

// event is one server-sent event.
type event struct {
	name string
	data any
}

// next returns the next batch of changes; more is true if another follows.
func (s *state) next(w *watcher) (events []event, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var nodes []json.RawMessage
	var gone []string
	for i, name := range slices.Sorted(maps.Keys(w.changed)) {
		if i == batchNodes {
			more = true
			break
		}
		delete(w.changed, name)
		if document, known := s.nodes[name]; known {
			nodes = append(nodes, document)
		} else {
			gone = append(gone, name)
		}
	}
	if nodes != nil {
		events = append(events, event{"nodes", nodes})
	}
	if gone != nil {
		events = append(events, event{"gone", gone})
	}
	if w.status && !more {
		w.status = false
		events = append(events, event{"status", s.status})
	}
	return events, more
}
