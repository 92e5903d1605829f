package operations

import (
	"errors"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestPeersFitTogetherOrNotAtAll: the volumes of one pod fit together, or none is created.
func TestPeersFitTogetherOrNotAtAll(t *testing.T) {
	_, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	all := d.MustCapacity(t, b.Class()).Available
	first, second, large := b.Spec("first", all/2), b.Spec("second", all/2), b.Spec("large", all/2+lvmtest.ExtentSize)

	d.Counted(t, "a pod that does not fit", 0, func() {
		_, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{large})
		hosttest.WantKind(t, "the smaller of two that do not fit together", err, lvm.KindInsufficientCapacity)
		if err != nil && !strings.Contains(err.Error(), `on one node with large`) {
			t.Errorf("the error does not name the peer: %v", err)
		}
	})
	if c := d.MustCapacity(t, b.Class()).Available; c != all {
		t.Errorf("%s are free after a refusal, %s before", c, all)
	}

	_, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{second, first})
	hosttest.Must(t, err)
	if c := d.MustCapacity(t, b.Class()).Available; c != 0 {
		t.Errorf("with capacity reserved for the peer, %s are free", c)
	}
	hosttest.Refused(t, "another pod's volume in the reserved capacity", lvm.KindInsufficientCapacity)(d.Create(t.Context(), b.Spec("other", lvmtest.ExtentSize)))
	_, err = d.CreateWithPeers(t.Context(), second, []lvm.Spec{first})
	hosttest.Must(t, err)
	d.Counted(t, "both again", 0, func() {
		_, err = d.CreateWithPeers(t.Context(), first, []lvm.Spec{second})
		hosttest.Must(t, err)
	})

	wrong := b.Spec("wrong", -1)
	hosttest.Must(t, d.Delete(t.Context(), lvm.ID{VG: b.ReadGroup(t).UUID, LV: hosttest.FindLV(t, b.ReadGroup(t), d.Volumes(t)[0].ID.LV).Name}))
	d.WaitWiped(t)
	name := d.Volumes(t)[0].Name
	for _, spec := range []lvm.Spec{first, second} {
		if spec.Name != name {
			_, err = d.CreateWithPeers(t.Context(), spec, []lvm.Spec{wrong})
			hosttest.Must(t, err) // an invalid peer does not matter
		}
	}
}

// TestSmallerPeerCreatesThePool: in a new thin pool, and in one that must grow, a pod's volumes are created in any order, and so are its other
// volumes after what another pod, or a snapshot, needs of the pool meanwhile.
func TestSmallerPeerCreatesThePool(t *testing.T) {
	_, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	class := b.Thin("any", lvmtest.ExtentSize, lvm.ID{}).Class
	part := d.MustCapacity(t, class).Largest / 8 / lvmtest.ExtentSize * lvmtest.ExtentSize
	for _, pod := range []string{"a", "b"} {
		small, large := b.Thin(pod+"-small", part, lvm.ID{}), b.Thin(pod+"-large", 2*part, lvm.ID{})
		made, err := d.CreateWithPeers(t.Context(), small, []lvm.Spec{large})
		hosttest.Must(t, err)
		_, err = d.Create(t.Context(), b.Thin(pod+"-other", lvmtest.ExtentSize, lvm.ID{}))
		hosttest.Must(t, err)
		sn, err := d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: pod, Source: made.ID})
		hosttest.Must(t, err)
		hosttest.Must(t, d.DeleteSnapshot(t.Context(), sn.ID))
		_, err = d.CreateWithPeers(t.Context(), large, []lvm.Spec{small})
		hosttest.Must(t, err)
	}
}

// TestPeerIsReceivedInItsReservation: the capacity that is reserved for a pod's other volume is that volume's, too, if it is a full copy.
func TestPeerIsReceivedInItsReservation(t *testing.T) {
	_, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	class := b.Thin("any", lvmtest.ExtentSize, lvm.ID{}).Class
	half := d.MustCapacity(t, class).Largest / 2 / lvmtest.ExtentSize * lvmtest.ExtentSize
	first, second := b.Thin("first", half, lvm.ID{}), b.Thin("second", half, lvm.ID{VG: "elsewh-ere0-0000-0000-0000-0000-000000", LV: lvm.SnapshotName("s")})
	peer := second
	peer.Source = lvm.ID{}
	_, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{peer})
	hosttest.Must(t, err)
	hosttest.Refused(t, "another pod's volume in the reserved capacity", lvm.KindInsufficientCapacity)(d.Create(t.Context(), b.Thin("other", half, lvm.ID{})))
	_, err = d.Receive(t.Context(), lvm.Incoming{Spec: second, Move: strings.Repeat("0", 32)})
	hosttest.Must(t, err)
}

// TestReserve: the capacity for a full copy and its peer is kept for them. That of the copy is free once its volume was received and discarded.
func TestReserve(t *testing.T) {
	_, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	class := b.Thin("any", lvmtest.ExtentSize, lvm.ID{}).Class
	half := d.MustCapacity(t, class).Largest / 2 / lvmtest.ExtentSize * lvmtest.ExtentSize
	peer, whole, other := b.Thin("peer", half, lvm.ID{}), b.Thin("copy", half, lvm.ID{}), b.Thin("other", half, lvm.ID{})
	hosttest.WantKind(t, "more than there is", d.Reserve(t.Context(), b.Thin("large", 2*half, lvm.ID{}), []lvm.Spec{peer}), lvm.KindInsufficientCapacity)
	hosttest.Must(t, d.Reserve(t.Context(), whole, []lvm.Spec{peer}))
	hosttest.Must(t, d.Reserve(t.Context(), whole, []lvm.Spec{peer}))
	hosttest.Refused(t, "another pod's volume in the reserved capacity", lvm.KindInsufficientCapacity)(d.Create(t.Context(), other))
	copied := whole
	copied.Source = lvm.ID{VG: "elsewh-ere0-0000-0000-0000-0000-000000", LV: lvm.SnapshotName("s")}
	v, err := d.Receive(t.Context(), lvm.Incoming{Spec: copied, Move: strings.Repeat("0", 32)})
	hosttest.Must(t, err)
	_, err = d.Create(t.Context(), peer)
	hosttest.Must(t, err)
	hosttest.Must(t, d.Discard(t.Context(), v.ID, v.UUID))
	_, err = d.Create(t.Context(), other)
	hosttest.Must(t, err)
}

// TestFormerCopyIsWiped: what a move copied of a user's volume is zeroed before its extents are free, also if the next move does not fit it.
func TestFormerCopyIsWiped(t *testing.T) {
	node, b, d := hosttest.Started(t)
	spec := b.Spec("moves", 2*lvmtest.ExtentSize)
	first, err := d.Receive(t.Context(), lvm.Incoming{Spec: spec, Move: strings.Repeat("0", 32)})
	hosttest.Must(t, err)
	spec.Required *= 2
	again := lvm.Incoming{Spec: spec, Move: strings.Repeat("1", 32)}
	release := node.HoldWipes()
	_, err = d.Receive(t.Context(), again)
	hosttest.WantKind(t, "while the former copy is wiped", err, lvm.KindBusy)
	if n := hosttest.StateTags(node, "vg-test")["deleting"]; n != 1 {
		t.Errorf("%d logical volumes are being wiped", n)
	}
	release()
	d.WaitWiped(t)
	second, err := d.Receive(t.Context(), again)
	hosttest.Must(t, err)
	if second.UUID == first.UUID || second.Size != spec.Required {
		t.Errorf("received into %+v", second)
	}
}

// TestCreatedPeerIsReturnedAgain: a created volume is returned again even if its peer no longer fits, and Fits agrees with
// CreateWithPeers.
func TestCreatedPeerIsReturnedAgain(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	all := d.MustCapacity(t, b.Class()).Available
	first, second, other := b.Spec("first", all/2), b.Spec("second", all/2), b.Spec("other", 2*lvmtest.ExtentSize)
	hosttest.Must(t, d.Fits(t.Context(), []lvm.Spec{first, second}))
	made, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{second})
	hosttest.Must(t, err)

	hosttest.Must(t, d.Close(t.Context())) // and its reservation for the second is lost
	d = hosttest.StartDriver(t, node, hosttest.Unsettled)
	_, err = d.Create(t.Context(), other)
	hosttest.Must(t, err)
	again, err := d.CreateWithPeers(t.Context(), first, []lvm.Spec{second})
	hosttest.Must(t, err)
	if again.ID != made.ID || again.UUID != made.UUID {
		t.Errorf("created %+v, and then %+v", made, again)
	}
	for what, err := range map[string]error{
		"CreateWithPeers": func() error { _, err := d.CreateWithPeers(t.Context(), second, []lvm.Spec{first}); return err }(),
		"Fits":            d.Fits(t.Context(), []lvm.Spec{first, second}),
	} {
		hosttest.WantKind(t, what, err, lvm.KindInsufficientCapacity)
		var misfit *lvm.UnplaceableError
		if !errors.As(err, &misfit) || misfit.Spec.Name != "second" {
			t.Errorf("%s does not name the volume that does not fit: %v", what, err)
		}
	}
	if c := d.MustCapacity(t, b.Class()).Available; c != all/2-2*lvmtest.ExtentSize {
		t.Errorf("after the refusals %s are free", c)
	}
}
