package operations

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

const (
	roundOne = "00000000000000000000000000000001"
	roundTwo = "00000000000000000000000000000002"
)

// failing is a thin_delta that fails, as it does when it is killed.
type failing struct{ err error }

func (f failing) Compare(context.Context, string, int, int, func(int64, int64)) (lvm.Bytes, error) {
	return 0, f.err
}

// moving is a driver with a volume that is about to move, and two rounds of it.
func moving(t *testing.T, node *lvmtest.Node, m lvm.Machine) (*hosttest.Driver, lvm.Volume) {
	t.Helper()
	d := hosttest.StartOn(t, node, lvm.Config{CacheTTL: -1}, m)
	v := d.MustCreate(t, hosttest.OnFake(node).Thin("busy", 12*lvm.MiB, lvm.ID{}))
	d.MustActivate(t, v)
	hosttest.Must(t, d.NoteMove(t.Context(), v.ID, v.UUID, "a record"))
	for n, move := range []string{roundOne, roundTwo} {
		_, err := d.TakeRound(t.Context(), lvm.RoundSpec{Move: move, Source: v.ID, SourceUUID: v.UUID, Number: n + 1})
		hosttest.Must(t, err)
	}
	return d, v
}

func isHeld(t *testing.T, node *lvmtest.Node, g lvm.Group) bool {
	t.Helper()
	path, active, err := node.Kernel().Device(lvm.DeviceUUID(g.UUID, g.FindLV(lvm.DefaultPool).UUID) + "-tpool")
	if err != nil || !active {
		t.Fatalf("the pool: active %t, %v", active, err)
	}
	_, status, err := node.Kernel().Status(path)
	hosttest.Must(t, err)
	return strings.Fields(status)[3] != "-"
}

func roundState(t *testing.T, d *hosttest.Driver, move string) lvm.VolumeState {
	t.Helper()
	rounds, err := d.Rounds(t.Context())
	hosttest.Must(t, err)
	for _, r := range rounds {
		if r.Move == move {
			return r.State
		}
	}
	return ""
}

// TestFailedComparison: a thin_delta that fails leaves no metadata snapshot.
func TestFailedComparison(t *testing.T) {
	node := hosttest.NewNode()
	d, v := moving(t, node, lvm.Machine{Delta: failing{errors.New("signal: killed")}})
	if _, err := d.Changes(t.Context(), v.ID, v.UUID, roundOne, roundTwo); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
	if g := hosttest.OnFake(node).ReadGroup(t); isHeld(t, node, g) || roundState(t, d, roundOne) != lvm.StateReady {
		t.Errorf("the pool has a metadata snapshot: %t; the round is %s", isHeld(t, node, g), roundState(t, d, roundOne))
	}
}

// TestForeignMetadataSnapshot: that of another program stays, and the driver says what is in the way.
func TestForeignMetadataSnapshot(t *testing.T) {
	node := hosttest.NewNode()
	d, v := moving(t, node, lvm.Machine{})
	g := hosttest.OnFake(node).ReadGroup(t)
	node.HoldMetadata("vg-test/"+lvm.DefaultPool, true)
	_, err := d.Changes(t.Context(), v.ID, v.UUID, roundOne, roundTwo)
	hosttest.WantKind(t, "compare", err, lvm.KindBusy)
	if !isHeld(t, node, g) || roundState(t, d, roundOne) != lvm.StateReady {
		t.Error("the driver released the metadata snapshot of another program")
	}
	node.HoldMetadata("vg-test/"+lvm.DefaultPool, false)
	if _, err := d.Changes(t.Context(), v.ID, v.UUID, roundOne, roundTwo); err != nil {
		t.Error(err)
	}
}

// interrupted is a kernel whose pools take no message but the first.
type interrupted struct {
	lvm.Kernel
	sent *int
}

func (k interrupted) MessagePool(uuid, text string) error {
	if *k.sent++; *k.sent > 1 {
		return errors.New("interrupted")
	}
	return k.Kernel.MessagePool(uuid, text)
}

// TestInterruptedComparison: the next start, and what comes before it, release the metadata snapshot that the tags record.
func TestInterruptedComparison(t *testing.T) {
	for what, next := range map[string]func(t *testing.T, d *hosttest.Driver, v lvm.Volume){
		"start": func(t *testing.T, d *hosttest.Driver, _ lvm.Volume) {
			wait.For(t, time.Minute, "the round is ready", func() bool { return roundState(t, d, roundOne) == lvm.StateReady })
		},
		"another comparison": func(t *testing.T, d *hosttest.Driver, v lvm.Volume) {
			if _, err := d.Changes(t.Context(), v.ID, v.UUID, roundOne, roundTwo); err != nil {
				t.Error(err)
			}
		},
		"removal": func(t *testing.T, d *hosttest.Driver, v lvm.Volume) {
			rounds, err := d.Rounds(t.Context())
			hosttest.Must(t, err)
			hosttest.Must(t, d.DropRound(t.Context(), rounds[0].ID, rounds[0].UUID))
		},
	} {
		t.Run(what, func(t *testing.T) {
			node, sent := hosttest.NewNode(), new(int)
			d, v := moving(t, node, lvm.Machine{Kernel: interrupted{node.Kernel(), sent}})
			if _, err := d.Changes(t.Context(), v.ID, v.UUID, roundOne, roundTwo); err == nil {
				t.Error("it ended")
			}
			g := hosttest.OnFake(node).ReadGroup(t)
			if !isHeld(t, node, g) || roundState(t, d, roundOne) != lvm.StateComparing {
				t.Fatal("nothing is left to release")
			}
			*sent = -100
			if what == "start" {
				d = hosttest.StartOn(t, node, lvm.Config{CacheTTL: -1}, lvm.Machine{})
			}
			next(t, d, v)
			if isHeld(t, node, g) || roundState(t, d, roundOne) == lvm.StateComparing {
				t.Errorf("the metadata snapshot is there; the round is %s", roundState(t, d, roundOne))
			}
		})
	}
}

// TestUnneededRounds: a start removes the rounds whose move ended, and of volumes that are gone; it keeps the others.
func TestUnneededRounds(t *testing.T) {
	for what, c := range map[string]struct {
		end  func(t *testing.T, d *hosttest.Driver, v lvm.Volume)
		left int
	}{
		"the move goes on": {func(*testing.T, *hosttest.Driver, lvm.Volume) {}, 2},
		"the move ended": {func(t *testing.T, d *hosttest.Driver, v lvm.Volume) {
			hosttest.Must(t, d.NoteMove(t.Context(), v.ID, v.UUID, ""))
		}, 0},
		"the volume is held": {hold, 2},
		"the volume is moved": {func(t *testing.T, d *hosttest.Driver, v lvm.Volume) {
			hold(t, d, v)
			hosttest.Must(t, d.HandOver(t.Context(), v.ID, v.UUID, roundOne))
		}, 0},
		"the volume is gone": {func(t *testing.T, d *hosttest.Driver, v lvm.Volume) { hosttest.Must(t, d.Delete(t.Context(), v.ID)) }, 0},
		"a later volume has its name": {func(t *testing.T, d *hosttest.Driver, v lvm.Volume) {
			hosttest.Must(t, d.Delete(t.Context(), v.ID))
			d.WaitWiped(t)
			next := d.MustCreate(t, lvm.Spec{Name: v.Name, Class: v.Class, Required: v.Size})
			d.MustActivate(t, next)
			hosttest.Must(t, d.NoteMove(t.Context(), next.ID, next.UUID, "a record"))
		}, 0},
	} {
		t.Run(what, func(t *testing.T) {
			node := hosttest.NewNode()
			d, v := moving(t, node, lvm.Machine{})
			c.end(t, d, v)
			d = hosttest.StartOn(t, node, lvm.Config{CacheTTL: -1}, lvm.Machine{})
			var left []lvm.Round
			wait.For(t, time.Minute, "recovery is done", func() bool {
				var err error
				left, err = d.Rounds(t.Context())
				hosttest.Must(t, err)
				return len(left) == c.left
			})
		})
	}
}

func hold(t *testing.T, d *hosttest.Driver, v lvm.Volume) {
	t.Helper()
	_, err := d.Hold(t.Context(), v.ID, v.UUID, roundOne)
	hosttest.Must(t, err)
}

// TestNoRoomForRound: a pool without room refuses, and nothing is left.
func TestNoRoomForRound(t *testing.T) {
	node := hosttest.NewNode()
	d := hosttest.StartOn(t, node, lvm.Config{CacheTTL: -1}, lvm.Machine{})
	spec := hosttest.OnFake(node).Thin("full", 12*lvm.MiB, lvm.ID{})
	v := d.MustCreate(t, spec)
	device := d.MustActivate(t, v)
	hosttest.Must(t, d.NoteMove(t.Context(), v.ID, v.UUID, "a record"))
	node.Fill(device, 1000*lvm.MiB)
	_, err := d.TakeRound(t.Context(), lvm.RoundSpec{Move: roundOne, Source: v.ID, SourceUUID: v.UUID, Number: 1})
	hosttest.WantKind(t, "a round", err, lvm.KindInsufficientCapacity)
	if s := roundState(t, d, roundOne); s != "" {
		t.Errorf("the round is %s", s)
	}
}

// looking is a kernel that tells when Hold looks whether a device is in use.
type looking struct {
	lvm.Kernel
	looks func()
}

func (k looking) CheckUnused(ctx context.Context, path string) error {
	k.looks()
	return k.Kernel.CheckUnused(ctx, path)
}

// TestHoldAndOpening: a volume is not held while its device is about to be opened, nor the other way round. So who opens a volume that was ready after the
// opening began, has it for as long as its device stays open.
func TestHoldAndOpening(t *testing.T) {
	node, looks := hosttest.NewNode(), func() {}
	d, v := moving(t, node, lvm.Machine{Kernel: looking{node.Kernel(), func() { looks() }}})
	opened, err := d.Opening(v.ID, v.UUID)
	hosttest.Must(t, err)
	_, err = d.Hold(t.Context(), v.ID, v.UUID, roundOne)
	hosttest.WantKind(t, "Hold of a volume that is staged", err, lvm.KindInUse)
	opened()
	looked := false
	looks = func() {
		_, err := d.Opening(v.ID, v.UUID)
		hosttest.WantKind(t, "a stage while it is held", err, lvm.KindBusy)
		looked = true
	}
	_, err = d.Hold(t.Context(), v.ID, v.UUID, roundOne)
	if hosttest.Must(t, err); !looked {
		t.Error("Hold did not look whether the device is open")
	}
	if _, err := d.Hold(t.Context(), v.ID, v.UUID, roundOne); err != nil {
		t.Error(err)
	}
	opened, err = d.Opening(v.ID, v.UUID)
	hosttest.Must(t, err)
	opened()
}

// TestUnfinishedRounds: a round that could not be tagged as ready goes at the next look, not only at the driver's next start: each further attempt would leave
// one more.
func TestUnfinishedRounds(t *testing.T) {
	node := hosttest.NewNode()
	d, v := moving(t, node, lvm.Machine{})
	node.Before(func(argv []string) {
		if argv[0] == "lvcreate" {
			node.Fail(lvmtest.Fault{}) // the next command, which tags it as ready
		}
	})
	const third = "00000000000000000000000000000003"
	if _, err := d.TakeRound(t.Context(), lvm.RoundSpec{Move: third, Source: v.ID, SourceUUID: v.UUID, Number: 3}); err == nil || roundState(t, d, third) != lvm.StateCreating {
		t.Fatalf("%v, and the round is %q", err, roundState(t, d, third))
	}
	node.Before(nil)
	hosttest.Must(t, d.DropUnneededRounds(t.Context()))
	if one, two, three := roundState(t, d, roundOne), roundState(t, d, roundTwo), roundState(t, d, third); one != lvm.StateReady || two != lvm.StateReady || three != "" {
		t.Errorf("the rounds are %q, %q and %q", one, two, three)
	}
}
