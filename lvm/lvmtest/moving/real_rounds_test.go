//go:build reallvm

package moving

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/move"
)

// busy is a thin volume that is about to move, and that a pod has open.
type busy struct {
	*sides
	v      lvm.Volume
	device string
	pod    *os.File
	random *rand.Rand
	freed  map[int]bool // chunks that have no block
}

func (s *sides) makeBusy(spec lvm.Spec) *busy {
	s.t.Helper()
	b := &busy{sides: s, v: s.d.MustCreate(s.t, spec), random: rand.New(rand.NewPCG(5, 6)), freed: map[int]bool{}}
	b.device = s.activate(b.v)
	s.write(b.device, content(b.v.DeviceSize()))
	hosttest.Must(s.t, s.d.NoteMove(s.t.Context(), b.v.ID, b.v.UUID, "a record"))
	var err error
	b.pod, err = os.OpenFile(b.device, os.O_RDWR, 0)
	hosttest.Must(s.t, err)
	return b
}

// change writes and discards chunks of the pool, as a pod does, and returns how many changed. A part that has no chunk does not change by a discard.
func (b *busy) change(writes, discards int) lvm.Bytes {
	b.t.Helper()
	const chunk = 64 << 10
	free := b.random.Perm(int(b.v.DeviceSize() / chunk))
	data := make([]byte, 5000)
	for i := range data {
		data[i] = byte(b.random.IntN(256))
	}
	for _, at := range free[:writes] {
		_, err := b.pod.WriteAt(data, int64(at)*chunk+int64(b.random.IntN(chunk-len(data))))
		hosttest.Must(b.t, err)
		delete(b.freed, at)
	}
	hosttest.Must(b.t, b.pod.Sync())
	mapped := 0
	for _, at := range free[writes : writes+discards] {
		if !b.freed[at] {
			mapped++
		}
		b.freed[at] = true
		reallvm.Tool(b.t, "blkdiscard", "-o", fmt.Sprint(at*chunk), "-l", fmt.Sprint(chunk), b.device)
	}
	return lvm.Bytes(writes+mapped) * chunk
}

// round takes a round, and returns its offer.
func (b *busy) round(number int) move.Offer {
	b.t.Helper()
	ctx := b.t.Context()
	hosttest.Must(b.t, b.source.TakeRound(ctx, b.v.ID, b.v.UUID, number, 0))
	return b.offer(number)
}

func (b *busy) offer(number int) move.Offer {
	b.t.Helper()
	rounds, err := b.source.Rounds(b.t.Context())
	hosttest.Must(b.t, err)
	v, err := b.d.Lookup(b.t.Context(), b.v.ID)
	hosttest.Must(b.t, err)
	for _, r := range rounds {
		if r.Number == number {
			offer, err := b.source.OfferRound(b.t.Context(), v, r)
			hosttest.Must(b.t, err)
			return b.renamed(offer)
		}
	}
	b.t.Fatalf("there is no round %d: %+v", number, rounds)
	return move.Offer{}
}

// dropBefore removes the rounds before one.
func (b *busy) dropBefore(number int) {
	b.t.Helper()
	rounds, err := b.source.Rounds(b.t.Context())
	hosttest.Must(b.t, err)
	for _, r := range rounds {
		if r.Number < number {
			hosttest.Must(b.t, b.source.DropRound(b.t.Context(), r))
		}
	}
}

// last ends the pod, and moves the volume.
func (b *busy) last() {
	b.t.Helper()
	ctx := b.t.Context()
	want := reallvm.ReadAt(b.t, b.device, 0, int(b.v.DeviceSize()))
	hosttest.Must(b.t, b.pod.Close())
	offer, err := b.source.Hold(ctx, b.v.ID, b.v.UUID)
	hosttest.Must(b.t, err)
	if offer.Since == "" {
		b.t.Error("everything is copied again")
	}
	offer = b.renamed(offer)
	p := b.receive(offer, received)
	b.t.Logf("the last copy: %s of %s", p.Total, b.v.Size)
	if p.Total > b.v.Size/4 {
		b.t.Error("the last copy is not that of the changes")
	}
	b.arrive(b.v, want, offer, p)
	hosttest.Must(b.t, b.source.DropUnneededRounds(ctx))
	if rounds, err := b.source.Rounds(ctx); err != nil || len(rounds) > 0 {
		b.t.Errorf("left: %+v, %v", rounds, err)
	}
}

func of(offer move.Offer) func(move.Progress) bool {
	return func(p move.Progress) bool { return p.Volume.Base == offer.Move }
}

// TestRounds_RealLVM copies a volume while a pod writes and discards: each round sends exactly the chunks that changed, and what was discarded takes
// no blocks at the target.
func TestRounds_RealLVM(t *testing.T) {
	s := newSides(t)
	encrypted := s.b.Thin("busy encrypted", 20*lvm.MiB, lvm.ID{})
	encrypted.Class.Encryption = lvm.EncryptionLUKS2
	for _, spec := range []lvm.Spec{s.b.Thin("busy", 40*lvm.MiB, lvm.ID{}), encrypted} {
		t.Run(spec.Name, func(t *testing.T) {
			outer := s.t
			defer func() { s.t = outer }()
			s.t = t
			b := s.makeBusy(spec)
			s.receive(b.round(1), func(p move.Progress) bool { return p.Volume.Base != "" })
			for number := 2; number <= 4; number++ {
				changed := b.change(20, 30)
				offer := b.round(number)
				p := s.receive(offer, of(offer))
				if p.Total != changed {
					t.Errorf("round %d: %s were copied, and %s changed", number, p.Total, changed)
				}
				b.dropBefore(number)
			}
			if free := usedOf(t, targetGroup, s.targetLV(b)); free > usedOf(t, reallvm.Group, b.v.ID.LV)+2 {
				t.Errorf("what was discarded takes blocks at the target: %d %%", free)
			}
			b.change(5, 5)
			b.last()
		})
	}
}

// targetLV is the name of the logical volume that receives the copy.
func (s *sides) targetLV(b *busy) string { return lvm.LVName("copy of " + b.v.Name) }

// usedOf is how much of a thin volume has blocks, in percent.
func usedOf(t *testing.T, group, lv string) (percent int) {
	t.Helper()
	text := reallvm.Admin(t, "lvs", "--noheadings", "--nosuffix", "-o", "data_percent", group+"/"+lv)
	if _, err := fmt.Sscanf(strings.TrimSpace(text), "%d", &percent); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return percent
}

// TestKilledRounds_RealLVM ends both drivers at random moments of rounds: the next ones continue, and the copy is equal.
func TestKilledRounds_RealLVM(t *testing.T) {
	s := newSides(t)
	s.rate = 16 * lvm.MiB
	s.start()
	b := s.makeBusy(s.b.Thin("long", 40*lvm.MiB, lvm.ID{}))
	for number := 1; number <= 4; number++ {
		if number > 1 {
			b.change(60, 40)
		}
		b.round(number)
		for range 3 {
			s.receive(b.offer(number), func(p move.Progress) bool { return p.Running || p.Volume.Base != "" })
			time.Sleep(time.Duration(rand.IntN(900)) * time.Millisecond)
			s.start()
		}
		offer := b.offer(number)
		s.receive(offer, of(offer))
		b.dropBefore(number)
	}
	b.change(10, 10)
	b.last()
}

// TestRoundWithoutRoom_RealLVM: a pool that is too full has no round; the volume is not harmed.
func TestRoundWithoutRoom_RealLVM(t *testing.T) {
	s := newSides(t)
	spec := s.b.Thin("full", 40*lvm.MiB, lvm.ID{})
	spec.Class.Overprovision = 100
	v := s.d.MustCreate(t, spec)
	s.write(s.activate(v), content(v.Size))
	filler := spec
	filler.Name, filler.Required = "filler", s.d.MustCapacity(t, spec.Class).Largest
	s.d.MustCreate(t, filler)
	hosttest.Must(t, s.d.NoteMove(t.Context(), v.ID, v.UUID, "a record"))
	err := s.source.TakeRound(t.Context(), v.ID, v.UUID, 1, 0)
	hosttest.WantKind(t, "a round", err, lvm.KindInsufficientCapacity)
	t.Log(err)
	hosttest.Must(t, s.d.NoteMove(t.Context(), v.ID, v.UUID, ""))
	s.b.DeleteAll(t, s.d)
}
