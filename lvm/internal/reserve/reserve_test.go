package reserve

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// reserving is a group of 100 extents with its reservations.
type reserving struct {
	Table
	state lvm.State
}

func newReserving() *reserving {
	return &reserving{state: lvm.State{Groups: []lvm.Group{fixture.TestGroup("vg-data", []lvm.Run{{Start: 0, Count: 100}})}}}
}

func (r *reserving) spec(name string, extents int) lvm.Spec {
	return lvm.Spec{Name: name, Class: lvm.Class{Group: "vg-data"}, Required: lvm.Bytes(extents) * r.state.Groups[0].ExtentSize}
}

// ask runs one request for a volume from its start to its end.
func (r *reserving) ask(spec lvm.Spec, siblings ...lvm.Spec) error {
	leave := r.Enter(spec)
	_, err := r.Plan(r.state, fixture.TestCluster, NewRequest(spec, siblings), true)
	leave(err)
	return err
}

func (r *reserving) free() lvm.Extents { return r.Apply(r.state).Groups[0].FreeExtents() }

// TestReservationsEnd: capacity for a volume that is never requested stays reserved for seconds. While the volume is wanted, it
// stays for up to two minutes, and while a request is in flight, without a limit.
func TestReservationsEnd(t *testing.T) {
	for _, test := range []struct {
		name   string
		wanted bool // its claim still has this selected node
		asked  bool // its request waits for the lock
		want   time.Duration
	}{
		{"it never comes", false, false, reserveFor},
		{"it is wanted", true, false, reserveMost},
		{"it waits for the lock", false, true, 10 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReserving()
				fixture.Must(t, r.ask(r.spec("a", 40), r.spec("b", 50)))
				if test.asked {
					r.Enter(r.spec("b", 50))
				}
				began := time.Now()
				for time.Since(began) < test.want {
					if free := r.free(); free != 50 {
						t.Fatalf("after %s %d extents are free, want 50", time.Since(began), free)
					}
					time.Sleep(time.Second)
					r.Renew(func(v lvm.Volume) bool { return test.wanted && v.Name == "b" })
				}
				if free := r.free(); (free == 50) != test.asked {
					t.Errorf("after %s %d extents are free", test.want, free)
				}
			})
		})
	}
}

// TestPeersAreRefusedTogether: after one volume of a pod is refused, so is the other, once, whenever its request began.
// Exceptions: both fit meanwhile, or seconds have passed and the other was not in flight.
func TestPeersAreRefusedTogether(t *testing.T) {
	for _, test := range []struct {
		name    string
		between func(r *reserving, a, b lvm.Spec)
		refused bool
	}{
		{"at once", func(*reserving, lvm.Spec, lvm.Spec) {}, true},
		{"seconds later", func(*reserving, lvm.Spec, lvm.Spec) { time.Sleep(refusedFor - 1) }, true},
		{"later", func(*reserving, lvm.Spec, lvm.Spec) { time.Sleep(refusedFor) }, false},
		{"for the second time", func(r *reserving, a, b lvm.Spec) { _ = r.ask(b, a) }, false},
		{"after the first was created", func(r *reserving, a, b lvm.Spec) { _ = r.ask(a, b) }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReserving()
				full, a, b := r.state, r.spec("a", 40), r.spec("b", 50)
				full.Groups = []lvm.Group{fixture.TestGroup("vg-data", []lvm.Run{{Start: 0, Count: 60}})}
				room := r.state
				r.state = full
				wantNoRoom(t, r.ask(a, b), "on one node with b")
				r.state = room
				test.between(r, a, b)
				err := r.ask(b, a)
				if test.refused {
					wantNoRoom(t, err, "another claim of the same pod")
				} else {
					fixture.Must(t, err)
				}
			})
		})
	}
}

// TestRequestIsRefusedWhileWaiting: a request that began before its peer was refused is refused however long it waits.
func TestRequestIsRefusedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReserving()
		a, b := r.spec("a", 40), r.spec("b", 50)
		leave := r.Enter(b)
		room := r.state
		r.state = lvm.State{Groups: []lvm.Group{fixture.TestGroup("vg-data", []lvm.Run{{Start: 0, Count: 60}})}}
		wantNoRoom(t, r.ask(a, b), "on one node with b")
		r.state = room
		time.Sleep(10 * refusedFor)
		_, err := r.Plan(r.state, fixture.TestCluster, NewRequest(b, []lvm.Spec{a}), true)
		leave(err)
		wantNoRoom(t, err, "another claim of the same pod")
	})
}

// TestPlansWithoutLockReserveNothing: they reserve nothing, and refuse no volume with a reservation.
func TestPlansWithoutLockReserveNothing(t *testing.T) {
	r := newReserving()
	a, b := r.spec("a", 40), r.spec("b", 50)
	_, err := r.Plan(r.state, fixture.TestCluster, NewRequest(a, []lvm.Spec{b}), false)
	fixture.Must(t, err)
	if free := r.free(); free != 100 {
		t.Errorf("%d extents are free: capacity is reserved", free)
	}
	fixture.Must(t, r.ask(a, b))
	r.state = lvm.State{Groups: []lvm.Group{fixture.TestGroup("vg-data", []lvm.Run{{Start: 0, Count: 60}})}}
	p, err := r.Plan(r.state, fixture.TestCluster, NewRequest(b, []lvm.Spec{a}), false)
	fixture.Must(t, err)
	if alloc.PlacementGroup(p) != r.state.Groups[0].UUID {
		t.Errorf("PlacementGroup = %q", alloc.PlacementGroup(p))
	}
	_, err = r.Plan(r.state, fixture.TestCluster, NewRequest(b, []lvm.Spec{a}), true)
	wantNoRoom(t, err, "on one node with a")
}

func wantNoRoom(t *testing.T, err error, says string) {
	t.Helper()
	if lvm.KindOf(err) != lvm.KindInsufficientCapacity || !strings.Contains(err.Error(), says) {
		t.Fatalf("kind %d, want KindInsufficientCapacity that says %q: %v", lvm.KindOf(err), says, err)
	}
}
