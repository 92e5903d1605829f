package controller

import (
	"errors"
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

// TestPauseGrows: from 10 s to 5 min, doubled with each time that the pod comes back; a while later it is forgotten.
func TestPauseGrows(t *testing.T) {
	c := newClock()
	r := newRefusals(c.now)
	a, b := volumeIn("vg", "a", 3), volumeIn("vg", "b", 5)
	refuse := func() { r.add("pod", a, []lvm.Spec{b}, a, errors.New("full")) }
	away := func() bool { return len(r.against("vg")) > 0 }
	for _, pause := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		pause *= time.Second
		refuse()
		c.pass(pause / 2)
		refuse() // once more while it is kept away: it came before the capacity was published
		if !away() {
			t.Fatalf("it may come back after %s of %s", pause/2, pause)
		}
		c.pass(pause/2 - 1)
		if !away() {
			t.Fatalf("it may come back before %s", pause)
		}
		c.pass(1)
		if away() {
			t.Fatalf("it is kept away for more than %s", pause)
		}
	}
	r.forget("pod")
	refuse()
	c.pass(pauseFirst)
	if away() {
		t.Error("a pod that was forgotten is kept away longer than one that was never here")
	}
	c.pass(pauseMost + 1)
	r.add("other", a, []lvm.Spec{b}, a, errors.New("full"))
	if len(r.pods) != 1 {
		t.Errorf("%d pods are remembered, want only the last", len(r.pods))
	}
}

// TestLimitIsThatOfTheLargestInTheGroup: no other limit sends the pod away, and none is set where it is not the trouble.
func TestLimitIsThatOfTheLargestInTheGroup(t *testing.T) {
	r := newRefusals(newClock().now)
	small, large, other := volumeIn("vg", "small", 3), volumeIn("vg", "large", 5), volumeIn("vg2", "other", 7)
	r.add("pod", small, []lvm.Spec{other, large}, small, errors.New("full"))
	if kept := r.against("vg"); len(kept) != 1 || kept[0].below != 5 || len(kept[0].specs) != 3 {
		t.Errorf("the group without room: %+v", kept)
	}
	if kept := r.against("vg2"); len(kept) != 0 {
		t.Errorf("the group with room: %+v", kept)
	}
}

// TestRound: when one claim was refused, so are the others of the pod, once each and for moments only.
func TestRound(t *testing.T) {
	c := newClock()
	r := newRefusals(c.now)
	full := errors.New("full")
	a, b, stranger := volumeIn("vg", "a", 3), volumeIn("vg", "b", 5), volumeIn("vg", "c", 1)
	if err := r.again("pod", a); err != nil {
		t.Errorf("nobody was refused: %v", err)
	}
	r.add("pod", a, []lvm.Spec{b}, b, full)
	for _, test := range []struct {
		what    string
		pod     string
		spec    lvm.Spec
		refused bool
	}{
		{"the one that was refused", "pod", a, false},
		{"another pod's", "other", b, false},
		{"one that is new", "pod", stranger, false},
		{"its sibling", "pod", b, true},
		{"its sibling again", "pod", b, false},
	} {
		err := r.again(test.pod, test.spec)
		if (err != nil) != test.refused {
			t.Errorf("%s: %v", test.what, err)
		}
		if err != nil && (lvm.KindOf(err) != lvm.KindNoRoom || !errors.Is(err, full)) {
			t.Errorf("%s: kind %d, %v", test.what, lvm.KindOf(err), err)
		}
	}
	r.add("pod", a, []lvm.Spec{b}, b, full)
	c.pass(roundLasts)
	if err := r.again("pod", b); err != nil {
		t.Errorf("the round is over: %v", err)
	}
}
