package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// A pod whose claims do not fit here together returns as long as the published capacity suffices for each of them alone. So the
// service publishes less for withheldFor, which is longer than the scheduler waits before it retries (podMaxBackoffSeconds, 10
// s by default). This also keeps away pods that do fit. So for publishedFor in each cycle the service publishes the full
// capacity despite all refusals, and no pod waits for longer than a cycle.
const (
	withheldFor  = 11 * time.Second
	publishedFor = 4 * time.Second
	cycle        = withheldFor + publishedFor

	schedulerBackoff = 10 * time.Second
)

// refusals remembers the pods whose claims did not fit here together, only in memory: a restart costs one more attempt.
type refusals struct {
	now func() time.Time

	mu     sync.Mutex
	pods   map[string]refusal      // by the pod's UID
	cycles map[lvm.Class]time.Time // start of the first cycle of each class
}

// refusal is one refused pod.
type refusal struct {
	pod   string
	specs []lvm.Spec // all its volumes that do not exist yet
	class lvm.Class  // of the largest of those in the group with insufficient capacity
	below lvm.Bytes  // its size: only a limit below it, on its class, keeps the pod away
	until time.Time
}

func newRefusals(now func() time.Time) *refusals {
	return &refusals{now: now, pods: map[string]refusal{}, cycles: map[lvm.Class]time.Time{}}
}

// add records a refused pod, with the specs of this volume and its peers; unplaceable is the one that did not fit.
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

// expire drops expired refusals, and completed cycles that no refusal uses.
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

// against returns the pods because of which the service now publishes less for a class.
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

// forget drops a pod: it got a volume, all its volumes fit now, or it no longer waits.
func (r *refusals) forget(pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, pod)
}
