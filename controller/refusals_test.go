package controller

import (
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// clock is a time that the test sets.
type clock struct{ time.Time }

func (c *clock) now() time.Time       { return c.Time }
func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }
func newClock() *clock                { return &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }
func volumeIn(group, name string, size lvm.Bytes) lvm.Spec {
	return lvm.Spec{Name: name, Class: lvm.Class{Group: group}, Required: size}
}

// TestCapacityIsWithheldAfterRefusal: a pod that was refused is kept away for longer than the scheduler's longest backoff; and
// however many pods are refused, and however often, in each cycle there is a time in which nothing is withheld.
func TestCapacityIsWithheldAfterRefusal(t *testing.T) {
	c := newClock()
	r := newRefusals(c.now)
	vg := lvm.Class{Group: "vg"}
	a, b := volumeIn("vg", "a", 3), volumeIn("vg", "b", 5)
	withheld := time.Duration(0)
	for tick := range 600 { // a minute; each second one of 26 pods is refused
		if tick%10 == 0 {
			r.add(string(rune('a'+tick/10%26)), a, []lvm.Spec{b}, a)
		}
		if len(r.against(vg)) == 0 {
			withheld = 0
		} else if withheld += 100 * time.Millisecond; withheld > withheldFor {
			t.Fatalf("less is published for %s at a stretch", withheld)
		}
		c.pass(100 * time.Millisecond)
	}
	c.pass(time.Hour)
	r.add("late", a, []lvm.Spec{b}, a)
	if len(r.pods) != 1 || len(r.cycles) != 1 {
		t.Errorf("%d pods and %d classes are remembered, want only the last", len(r.pods), len(r.cycles))
	}
	c.pass(schedulerBackoff)
	if len(r.against(vg)) == 0 {
		t.Error("the pod comes back before the scheduler knows of it")
	}
	r.forget("late")
	if len(r.against(vg)) != 0 {
		t.Error("a pod that was forgotten is kept away")
	}
}

// TestWithheldCapacityIsPerGroup: no other limit sends the pod away. Another group, and other classes of the same group,
// have no limit.
func TestWithheldCapacityIsPerGroup(t *testing.T) {
	r := newRefusals(newClock().now)
	small, large, other := volumeIn("vg", "small", 3), volumeIn("vg", "large", 5), volumeIn("vg2", "other", 7)
	small.Class.Layout = lvm.LayoutThin
	r.add("pod", small, []lvm.Spec{other, large}, small)
	if kept := r.against(large.Class); len(kept) != 1 || kept[0].below != 5 || len(kept[0].specs) != 3 {
		t.Errorf("the class of the largest: %+v", kept)
	}
	for _, class := range []lvm.Class{small.Class, other.Class} {
		if kept := r.against(class); len(kept) != 0 {
			t.Errorf("class %+v: %+v", class, kept)
		}
	}
}
