package nodegroup

import (
	"maps"
	"time"
)

// remembered is how long a machine without a Node is remembered. One that returns is not new: its disks may hold what no object shows.
const remembered = 7 * 24 * time.Hour

// memory is what a Publisher remembers from round to round.
type memory struct {
	published map[string]published // by name of the object
	machines  map[string]machine   // by node.machine
}

// machine is a machine whose Node this process has seen.
type machine struct {
	used bool      // it has had a volume, as far as is known
	seen time.Time // when it last had a Node
}

// observe sets in s when each capacity became as it is, and which nodes are new. used are the nodes with a volume since the last round.
func (m *memory) observe(s *state, used map[string]bool) {
	m.observeNodes(s, used)
	now := make(map[string]published, len(s.published))
	for i := range s.published {
		p := &s.published[i]
		p.since = s.now
		if was, there := m.published[p.name]; there && isEqual(was.size, p.size) && isEqual(was.most, p.most) {
			p.since = was.since
		}
		now[p.name] = *p
	}
	m.published = now
}

// observeNodes counts the nodes of the first round as used: nothing shows what they had before.
func (m *memory) observeNodes(s *state, used map[string]bool) {
	first := m.machines == nil
	if first {
		m.machines = map[string]machine{}
	}
	for i, n := range s.nodes {
		isUsed := m.machines[n.machine].used || used[n.name] || first
		m.machines[n.machine] = machine{isUsed, s.now}
		s.nodes[i].isNew = !isUsed
	}
	maps.DeleteFunc(m.machines, func(_ string, known machine) bool { return s.now.Sub(known.seen) > remembered })
}
