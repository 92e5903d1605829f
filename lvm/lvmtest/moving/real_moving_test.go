//go:build reallvm

package moving

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/move"
)

func TestMain(m *testing.M) { reallvm.Main(m) }

// targetGroup is the group that stands for the other node.
const targetGroup = "nodelvm-other"

// sides are a driver with two groups, and a move.Node for each.
type sides struct {
	t      *testing.T
	b      hosttest.Fixture
	d      *hosttest.Driver
	source *move.Node
	target *move.Node
	rate   lvm.Bytes
	ends   func() // ends the nodes
}

type anyPeer struct{}

func (anyPeer) MayPull(context.Context, move.Request) error { return nil }

func newSides(t *testing.T) *sides {
	t.Helper()
	s := &sides{t: t, b: reallvm.NewFixture(t).OneAtATime()}
	var disks []string
	for i := range 5 {
		disks = append(disks, reallvm.MakeDisk(t, fmt.Sprintf("other%d", i), 96))
	}
	reallvm.Admin(t, append([]string{"vgcreate", "-y", "-s", "4m", targetGroup}, disks...)...)
	t.Cleanup(func() {
		s.d.Stop(t)
		reallvm.Admin(t, "vgremove", "-ff", "-y", targetGroup)
		hosttest.Must(t, os.RemoveAll("/dev/"+targetGroup))
		reallvm.ForgetDisks()
	})
	s.start()
	return s
}

// start starts a driver and its nodes, as after a restart.
func (s *sides) start() {
	s.t.Helper()
	if s.ends != nil {
		s.ends()
	}
	s.d = s.b.Start(s.t)
	listener, err := new(net.ListenConfig).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	hosttest.Must(s.t, err)
	s.source, s.target = s.node(listener.Addr().String()), s.node("")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	source, target := s.source, s.target
	go func() { served <- source.Serve(ctx, listener) }()
	s.ends = func() {
		hosttest.Must(s.t, target.Close(context.Background()))
		cancel()
		hosttest.Must(s.t, <-served)
		s.ends = nil
	}
	ends := s.ends
	s.t.Cleanup(func() {
		if s.ends != nil && source == s.source {
			ends()
		}
	})
}

func (s *sides) node(address string) *move.Node {
	n, err := move.New(move.Config{
		Engine: s.d.Host, Authorizer: anyPeer{}, Address: address, Rate: s.rate, Token: func() (string, error) { return "token", nil }, Log: slog.New(slog.DiscardHandler),
	})
	hosttest.Must(s.t, err)
	return n
}

// content is what a volume of this size gets: a third of it is zero.
func content(size lvm.Bytes) []byte {
	b := make([]byte, size)
	random := rand.NewChaCha8([32]byte{2})
	for at := lvm.Bytes(0); at < size; at += lvm.MiB {
		if at/lvm.MiB%3 != 1 {
			_, _ = random.Read(b[at : at+lvm.MiB])
		}
	}
	return b
}

// make creates a volume at the source with content, and holds it.
func (s *sides) make(spec lvm.Spec) (lvm.Volume, []byte, move.Offer) {
	s.t.Helper()
	v := s.d.MustCreate(s.t, spec)
	want := content(v.DeviceSize())
	s.write(s.activate(v), want)
	offer, err := s.source.Hold(s.t.Context(), v.ID, v.UUID)
	hosttest.Must(s.t, err)
	return v, want, s.renamed(offer)
}

// renamed gives the copy another name: one node cannot have two volumes of one.
func (s *sides) renamed(offer move.Offer) move.Offer {
	offer.Name = "copy of " + offer.Name
	return offer
}

func (s *sides) write(device string, b []byte) {
	s.t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	hosttest.Must(s.t, err)
	_, err = f.Write(b)
	hosttest.Must(s.t, err)
	hosttest.Must(s.t, f.Sync())
	hosttest.Must(s.t, f.Close())
}

// receive calls Receive until the progress is as wanted.
func (s *sides) receive(offer move.Offer, until func(move.Progress) bool) move.Progress {
	s.t.Helper()
	class := offer.Class
	class.Group = targetGroup
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		p, err := s.target.Receive(s.t.Context(), offer, class)
		hosttest.Must(s.t, err)
		if until(p) {
			return p
		}
		if time.Since(start) > 5*time.Minute {
			s.t.Fatalf("no such outcome: %+v", p)
		}
	}
}

func received(p move.Progress) bool { return p.Volume.State == lvm.StateReceived }

// arrive hands over, finishes, compares, and deletes both.
func (s *sides) arrive(v lvm.Volume, want []byte, offer move.Offer, p move.Progress) {
	s.t.Helper()
	ctx := s.t.Context()
	hosttest.Must(s.t, s.source.HandOver(ctx, v.ID, v.UUID, offer.Move))
	if _, active, err := s.d.Device(ctx, v.ID, v.UUID); err != nil || active {
		s.t.Errorf("the former copy is active: %v, %v", active, err)
	}
	now, err := s.target.Finish(ctx, p.Volume.ID, p.Volume.UUID)
	hosttest.Must(s.t, err)
	if now.State != lvm.StateReady || now.Class.WithoutGroup() != v.Class.WithoutGroup() || now.Size < v.Size {
		s.t.Errorf("arrived as %+v, left as %+v", now, v)
	}
	if now.FormatMark != 0 && bytes.Equal(want[now.FormatMark:][:lvm.FormatMarkSize], lvm.FormatMark(v.UUID)) {
		copy(want[now.FormatMark:], lvm.FormatMark(now.UUID))
	}
	device := s.activate(now)
	if got := reallvm.ReadAt(s.t, device, 0, len(want)); !bytes.Equal(got, want) {
		s.t.Error("the copy differs")
	}
	hosttest.Must(s.t, s.source.Remove(ctx, v.ID, v.UUID))
	hosttest.Must(s.t, s.d.Delete(ctx, now.ID))
	s.d.WaitWiped(s.t)
}

// TestMoveLayouts_RealLVM moves a volume of each layout, a raw one, and encrypted ones: the bytes of the logical volume arrive.
func TestMoveLayouts_RealLVM(t *testing.T) {
	s := newSides(t)
	linear := s.b.Spec("linear", 20*lvm.MiB)
	raw, encrypted := linear, linear
	raw.Name, raw.Block = "raw", true
	encrypted.Name, encrypted.Class.Encryption = "encrypted", lvm.EncryptionLUKS2
	specs := []lvm.Spec{linear, raw, encrypted}
	for _, shape := range hosttest.Shapes {
		specs = append(specs, lvm.Spec{Name: fmt.Sprintf("%s, %s", shape, shape.Class.StripeSize), Class: s.b.In(shape.Class), Required: 24 * lvm.MiB})
	}
	thin := s.b.Thin("thin", 20*lvm.MiB, lvm.ID{})
	thinEncrypted := s.b.Thin("thin encrypted", 20*lvm.MiB, lvm.ID{})
	thinEncrypted.Class.Encryption = lvm.EncryptionLUKS2
	specs = append(specs, thin, thinEncrypted) // the last: a pool stays, and takes the groups' extents
	for _, spec := range specs {
		t.Run(spec.Name, func(t *testing.T) {
			outer := s.t
			defer func() { s.t = outer }()
			s.t = t
			v, want, offer := s.make(spec)
			s.arrive(v, want, offer, s.receive(offer, received))
		})
	}
}

// TestThinStaysThin_RealLVM: zeroes of the source take no blocks of the target's pool.
func TestThinStaysThin_RealLVM(t *testing.T) {
	s := newSides(t)
	v, want, offer := s.make(s.b.Thin("sparse", 60*lvm.MiB, lvm.ID{}))
	p := s.receive(offer, received)
	if used := reallvm.Admin(t, "lvs", "--noheadings", "--nosuffix", "-o", "data_percent", targetGroup+"/"+p.Volume.ID.LV); used > "70" {
		t.Errorf("two thirds of the volume are not zero, and it uses %s %%", used)
	}
	s.arrive(v, want, offer, p)
}

// TestNeverMounted_RealLVM: a volume that was never mounted can still be formatted where it arrives.
func TestNeverMounted_RealLVM(t *testing.T) {
	s := newSides(t)
	v := s.d.MustCreate(t, s.b.Spec("new", 8*lvm.MiB))
	offer, err := s.source.Hold(t.Context(), v.ID, v.UUID)
	hosttest.Must(t, err)
	offer = s.renamed(offer)
	p := s.receive(offer, received)
	want := make([]byte, v.Size)
	copy(want[v.FormatMark:], lvm.FormatMark(v.UUID))
	s.arrive(v, want, offer, p)
}

// TestKilledCopy_RealLVM ends both drivers at random moments of a copy: the next ones continue, and the copy is equal.
func TestKilledCopy_RealLVM(t *testing.T) {
	s := newSides(t)
	s.rate = 16 * lvm.MiB
	s.start()
	v, want, _ := s.make(s.b.Spec("long", 64*lvm.MiB))
	for i := range 5 {
		offer, err := s.source.Hold(t.Context(), v.ID, v.UUID)
		hosttest.Must(t, err)
		s.receive(s.renamed(offer), func(p move.Progress) bool { return p.Running || received(p) })
		time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
		t.Logf("round %d", i)
		s.start()
	}
	offer, err := s.source.Hold(t.Context(), v.ID, v.UUID)
	hosttest.Must(t, err)
	offer = s.renamed(offer)
	s.arrive(v, want, offer, s.receive(offer, received))
}

// TestFailingSourceDisk_RealLVM: a source whose disk fails sends no end; the move goes on when the disk works again.
func TestFailingSourceDisk_RealLVM(t *testing.T) {
	s := newSides(t)
	v, want, offer := s.make(s.b.Spec("failing", 16*lvm.MiB))
	device, err := s.d.MoveDevice(t.Context(), v.ID, v.UUID, offer.Move)
	hosttest.Must(t, err)
	reallvm.Dmsetup(t, "wipe_table", device)
	p := s.receive(offer, func(p move.Progress) bool { return p.Problem != nil })
	if p.Volume.State != lvm.StateReceiving {
		t.Errorf("%+v", p)
	}
	t.Log(p.Problem)
	reallvm.Admin(t, "lvchange", "--refresh", reallvm.Group+"/"+v.ID.LV)
	s.arrive(v, want, offer, s.receive(offer, received))
}

// TestTargetFull_RealLVM: a target without capacity refuses, and the source's volume can be released.
func TestTargetFull_RealLVM(t *testing.T) {
	s := newSides(t)
	v := s.d.MustCreate(t, s.b.Spec("large", 400*lvm.MiB))
	filler := s.b.Light("filler", 200*lvm.MiB)
	filler.Class.Group = targetGroup
	f := s.d.MustCreate(t, filler)
	offer, err := s.source.Hold(t.Context(), v.ID, v.UUID)
	hosttest.Must(t, err)
	offer = s.renamed(offer)
	class := offer.Class
	class.Group = targetGroup
	_, err = s.target.Receive(t.Context(), offer, class)
	hosttest.WantKind(t, "receive", err, lvm.KindInsufficientCapacity)
	hosttest.Must(t, s.source.Cancel(t.Context(), v.ID, v.UUID))
	s.d.MustActivate(t, v)
	hosttest.Must(t, s.d.Delete(t.Context(), v.ID))
	hosttest.Must(t, s.d.Delete(t.Context(), f.ID))
	s.d.WaitWiped(t)
}

// activate returns the device of a ready volume's logical volume.
func (s *sides) activate(v lvm.Volume) string {
	s.t.Helper()
	_, device, err := s.d.ActivateAs(s.t.Context(), v.ID, v.UUID, v.Class.Encryption)
	hosttest.Must(s.t, err)
	return device
}
