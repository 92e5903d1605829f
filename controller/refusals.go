package controller

import (
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// How long a pod is kept away from this node after its claims had no room here together: longer with each time that it
// comes back in vain, for each end of such a while sends it here again.
const (
	pauseFirst = 10 * time.Second
	pauseMost  = 5 * time.Minute
)

// roundLasts is how long the pod's other claims, which the scheduler has sent here too, are expected after the first was
// refused.
const roundLasts = 10 * time.Second

// refusals remembers the pods whose claims had no room here together. In memory only: a restart costs one more attempt.
type refusals struct {
	now func() time.Time

	mu   sync.Mutex
	pods map[string]*refusal // by the pod's UID
}

// refusal is what is known of one pod.
type refusal struct {
	pod   string
	specs []lvm.Spec // all of its volumes that are to be made
	group string     // Class.Group of the one that had no room
	below lvm.Bytes  // size of the largest of those in that group: no smaller limit would send the pod elsewhere

	why    error
	began  time.Time       // of this round
	called map[string]bool // by Spec.Name, in this round
	pause  time.Duration
	until  time.Time // when the pod may come back
}

func newRefusals(now func() time.Time) *refusals {
	return &refusals{now: now, pods: map[string]*refusal{}}
}

// add notes that a pod's volumes, this one and its siblings, were refused; misfit is the one that had no room.
func (r *refusals) add(pod string, spec lvm.Spec, siblings []lvm.Spec, misfit lvm.Spec, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for uid, old := range r.pods {
		if now.Sub(old.until) > pauseMost {
			delete(r.pods, uid)
		}
	}
	p := r.pods[pod]
	if p == nil {
		p = &refusal{pod: pod}
		r.pods[pod] = p
	}
	if !now.Before(p.until) {
		p.pause = min(max(2*p.pause, pauseFirst), pauseMost)
		p.until = now.Add(p.pause)
	}
	p.specs, p.why, p.group, p.below = append(slices.Clone(siblings), spec), why, misfit.Class.Group, 0
	for _, s := range p.specs {
		if s.Class.Group == p.group {
			p.below = max(p.below, s.Required)
		}
	}
	p.began, p.called = now, map[string]bool{spec.Name: true}
}

// again refuses a volume whose sibling was refused moments ago, whatever room there is by now: that one was given back to
// the scheduler, and a volume that is made here would hold the pod.
func (r *refusals) again(pod string, spec lvm.Spec) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.pods[pod]
	wanted := func(s lvm.Spec) bool { return s.Name == spec.Name }
	if p == nil || p.called[spec.Name] || r.now().Sub(p.began) >= roundLasts || !slices.ContainsFunc(p.specs, wanted) {
		return nil
	}
	p.called[spec.Name] = true
	return lvm.Errorf(lvm.KindNoRoom, "another claim of the same pod was refused here: %w", p.why)
}

// against answers the pods that are kept away from a group, by the name that their classes have for it.
func (r *refusals) against(group string) (kept []refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		if p.group == group && p.below > 0 && r.now().Before(p.until) {
			kept = append(kept, *p)
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
