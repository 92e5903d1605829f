package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// A pod whose claims had no room here together comes back as long as the capacity that is published has room for each of
// them alone. So less is published for withheldFor, which outlasts the time after which the scheduler looks for a node
// once more (podMaxBackoffSeconds, 10 s by default). Less also keeps away pods that there is room for: for publishedFor
// in each cycle nothing is withheld, whoever was refused, so that no pod waits for longer than a cycle.
const (
	withheldFor  = 11 * time.Second
	publishedFor = 4 * time.Second
	cycle        = withheldFor + publishedFor

	schedulerBackoff = 10 * time.Second
)

// refusals remembers the pods whose claims had no room here together. In memory only: a restart costs one more attempt.
type refusals struct {
	now func() time.Time

	mu     sync.Mutex
	pods   map[string]refusal      // by the pod's UID
	cycles map[lvm.Class]time.Time // when the first cycle of each class began
}

// refusal is what is known of one pod.
type refusal struct {
	pod   string
	specs []lvm.Spec // all of its volumes that are to be made
	class lvm.Class  // of the largest of those in the group that had no room
	below lvm.Bytes  // size of that one: no smaller limit, and no other class', would send the pod elsewhere
	until time.Time
}

func newRefusals(now func() time.Time) *refusals {
	return &refusals{now: now, pods: map[string]refusal{}, cycles: map[lvm.Class]time.Time{}}
}

// add notes that a pod's volumes, this one and its peers, were refused; unplaceable is the one that had no room.
func (r *refusals) add(pod string, spec lvm.Spec, peers []lvm.Spec, unplaceable lvm.Spec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	p := refusal{pod: pod, specs: append(slices.Clone(peers), spec)}
	for _, s := range p.specs {
		if s.Class.Group == unplaceable.Class.Group && s.Required > p.below {
			p.class, p.below = s.Class, s.Required
		}
	}
	if p.below == 0 {
		return
	}
	if _, there := r.cycles[p.class]; !there {
		r.cycles[p.class] = r.now()
	}
	p.until = r.cycles[p.class].Add(withheldFor)
	for p.until.Sub(r.now()) < schedulerBackoff {
		p.until = p.until.Add(cycle)
	}
	r.pods[pod] = p
}

// expire forgets the pods whose time has passed, and the completed cycles that no pod needs any more.
func (r *refusals) expire() {
	now := r.now()
	maps.DeleteFunc(r.pods, func(_ string, p refusal) bool { return !now.Before(p.until) })
	maps.DeleteFunc(r.cycles, func(class lvm.Class, began time.Time) bool {
		needed := false
		for _, p := range r.pods {
			needed = needed || p.class == class
		}
		return !needed && now.Sub(began) >= cycle
	})
}

// against answers the pods for which less of a class is published now.
func (r *refusals) against(class lvm.Class) (kept []refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire()
	if began, there := r.cycles[class]; !there || r.now().Sub(began)%cycle >= withheldFor {
		return nil
	}
	for _, p := range r.pods {
		if p.class == class {
			kept = append(kept, p)
		}
	}
	return kept
}

// forget drops what is known of a pod: it has a volume, or there is room for all of it, or it has gone.
func (r *refusals) forget(pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, pod)
}
