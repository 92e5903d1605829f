package move

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

func (e *files) TakeRound(_ context.Context, spec lvm.RoundSpec) (lvm.Round, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.volumes[spec.Source].State != lvm.StateReady {
		return lvm.Round{}, lvm.Errorf(lvm.KindConflict, "its state is %s", e.volumes[spec.Source].State)
	}
	r := lvm.Round{ID: lvm.ID{VG: spec.Source.VG, LV: lvm.RoundName(spec.Move)}, UUID: spec.Move, State: lvm.StateReady, Size: e.volumes[spec.Source].Size, RoundSpec: spec}
	content, err := os.ReadFile(e.file(spec.Source))
	if err == nil {
		err = os.WriteFile(e.file(r.ID), content, 0o600)
	}
	e.rounds = append(e.rounds, r)
	return r, err
}

func (e *files) Rounds(context.Context) ([]lvm.Round, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.rounds), nil
}

func (e *files) DropRound(_ context.Context, id lvm.ID, _ string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rounds = slices.DeleteFunc(e.rounds, func(r lvm.Round) bool { return r.ID == id })
	return os.Remove(e.file(id))
}

func (e *files) RoundReceived(_ context.Context, id lvm.ID, _, move string) (lvm.Volume, error) {
	return e.change(id, func(v *lvm.Volume) error {
		if v.Move != move || v.State != lvm.StateReceiving {
			return lvm.Errorf(lvm.KindConflict, "another move")
		}
		v.Copied, v.Base = 0, move
		return nil
	})
}

// Changes compares files.
func (e *files) Changes(ctx context.Context, id lvm.ID, uuid, since, move string) (*lvm.Changes, error) {
	if e.incomparable != nil {
		return nil, e.incomparable
	}
	var both [2][]byte
	for i, name := range []string{since, move} {
		device, err := e.MoveDevice(ctx, id, uuid, name)
		if err == nil {
			both[i], err = os.ReadFile(device)
		}
		if err != nil {
			return nil, err
		}
	}
	c := lvm.NewChanges(lvm.Bytes(len(both[1])))
	for at := 0; at < len(both[1]); at += int(deltaSize) {
		end := min(at+int(deltaSize), len(both[1]))
		if !bytes.Equal(both[0][at:end], both[1][at:end]) {
			c.Add(lvm.Bytes(at), 1)
		}
	}
	return c, nil
}

// counted counts what a source sends.
type counted struct {
	net.Conn
	sent *atomic.Int64
}

func (c counted) Write(b []byte) (int, error) {
	c.sent.Add(int64(len(b)))
	return c.Conn.Write(b)
}

// newRounds is a bed with a thin volume, and what its source has sent.
func newRounds(t *testing.T, size lvm.Bytes) (*bed, *atomic.Int64) {
	t.Helper()
	sent := new(atomic.Int64)
	b := newBed(t, size, func(c net.Conn) net.Conn { return counted{c, sent} })
	_, err := b.engine.change(b.id, func(v *lvm.Volume) error { v.Class, v.Record = thinClass, "a record"; return nil })
	must(t, err)
	return b, sent
}

var thinClass = lvm.Class{Group: "vg", Layout: lvm.LayoutThin}

// write changes the volume, as a pod does.
func (b *bed) write(at lvm.Bytes, data []byte) {
	b.t.Helper()
	copy(b.content[at:], data)
	must(b.t, os.WriteFile(b.engine.file(b.id), b.content, 0o600))
}

// round takes the next round, and returns its offer.
func (b *bed) round(number int) Offer {
	b.t.Helper()
	must(b.t, b.source.TakeRound(b.t.Context(), b.id, "source", number, 0))
	all, err := b.source.Rounds(b.t.Context())
	must(b.t, err)
	offer, err := b.source.OfferRound(b.t.Context(), b.engine.volume(b.id), all[len(all)-1])
	must(b.t, err)
	return offer
}

func (b *bed) dropFirst() {
	b.t.Helper()
	all, err := b.source.Rounds(b.t.Context())
	must(b.t, err)
	must(b.t, b.source.DropRound(b.t.Context(), all[0]))
}

func hasRound(offer Offer) func(p Progress) bool {
	return func(p Progress) bool { return p.Volume.Base == offer.Move }
}

// copyOf receives until the copy of an offer is complete; the target retries at once.
func (b *bed) copyOf(offer Offer) Progress {
	b.t.Helper()
	for start := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		p, err := b.target.Receive(b.t.Context(), offer, thinClass)
		must(b.t, err)
		if isReceived(p) || offer.Round && hasRound(offer)(p) {
			return p
		}
		b.target.retryNow()
		if time.Since(start) > time.Minute {
			b.t.Fatalf("no end: %+v", p)
		}
	}
}

// TestRounds: after the first round only what changed travels, and what became zero is zero; the last copy is that of the held volume.
func TestRounds(t *testing.T) {
	b, sent := newRounds(t, 24*lvm.MiB+4096)
	first := b.round(1)
	if p := b.copyOf(first); p.Volume.State != lvm.StateReceiving || p.Total != lvm.Bytes(len(b.content)) {
		t.Errorf("after the first round: %+v", p)
	}
	sent.Store(0)
	b.write(5*lvm.MiB+100, []byte("second"))
	b.write(24*lvm.MiB+4000, []byte("the end"))
	second := b.round(2)
	if second.Since != first.Move {
		t.Errorf("the second is offered since %q", second.Since)
	}
	if p := b.copyOf(second); p.Total != 2*lvm.ChangeUnit || p.Done != p.Total {
		t.Errorf("after the second round: %+v", p)
	}
	b.dropFirst()
	b.write(9*lvm.MiB, make([]byte, 2*lvm.MiB))
	b.write(1, []byte("last"))
	last := b.hold()
	if last.Since != second.Move || last.Round {
		t.Errorf("the last: %+v", last)
	}
	p := b.copyOf(last)
	p.Done, p.Total = lvm.Bytes(len(b.content)), lvm.Bytes(len(b.content))
	b.check(p)
	if n := sent.Load(); n > 400<<10 {
		t.Errorf("the source sent %d bytes for 4 changed chunks and zeroes", n)
	}
}

// TestRoundsThatDoNotFit: whatever a side lost, everything is copied again, and the copy is equal. The chunk at 9 MiB was zero in the first round, is not
// in the second, and is zero again: a copy of what changed since the first would miss it.
func TestRoundsThatDoNotFit(t *testing.T) {
	at := 7 * lvm.MiB // zero: newBed
	for what, lose := range map[string]func(b *bed, id lvm.ID){
		"the target has a part of another round": func(b *bed, id lvm.ID) {
			b.write(at, []byte("for a moment"))
			offer := b.round(2)
			file, err := os.OpenFile(b.engine.file(id), os.O_RDWR, 0)
			must(b.t, err)
			_, err = file.WriteAt([]byte("for a moment"), int64(at))
			must(b.t, err)
			must(b.t, file.Close())
			_, err = b.engine.Receive(b.t.Context(), lvm.Incoming{Spec: lvm.Spec{Name: "pvc"}, Move: offer.Move, Since: offer.Since})
			must(b.t, err)
			b.write(at, make([]byte, 20))
			must(b.t, b.source.DropRound(b.t.Context(), b.engine.rounds[1]))
		},
		"the target has no round": func(b *bed, id lvm.ID) {
			_, err := b.engine.change(id, func(v *lvm.Volume) error { v.Base = ""; return nil })
			must(b.t, err)
		},
		"the target has another round": func(b *bed, id lvm.ID) {
			_, err := b.engine.change(id, func(v *lvm.Volume) error { v.Base, v.Move = newMove(), newMove(); return nil })
			must(b.t, err)
		},
		"the source has no round":    func(b *bed, _ lvm.ID) { b.dropFirst() },
		"the source cannot compare":  func(b *bed, _ lvm.ID) { b.engine.incomparable = errors.New("no thin_delta") },
		"the target's volume is new": func(b *bed, id lvm.ID) { must(b.t, b.target.Discard(b.t.Context(), id, "target")) },
		"the volume was held, released": func(b *bed, _ lvm.ID) {
			b.copyPart(b.hold())
			must(b.t, b.source.Cancel(b.t.Context(), b.id, "source"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			b, _ := newRounds(t, 12*lvm.MiB)
			first := b.round(1)
			p := b.copyOf(first)
			b.endTarget()
			lose(b, p.Volume.ID)
			b.newTarget()
			b.write(3*lvm.MiB, []byte("later"))
			last := b.hold()
			p = b.copyOf(last)
			p.Done, p.Total = 12*lvm.MiB, 12*lvm.MiB
			b.check(p)
			if b.engine.incomparable != nil && len(b.engine.rounds) > 0 {
				t.Error("rounds of no use are left")
			}
		})
	}
}

// copyPart begins a copy, which has written something that the source then changes.
func (b *bed) copyPart(offer Offer) {
	_, err := b.engine.Receive(b.t.Context(), lvm.Incoming{Spec: lvm.Spec{Name: "pvc"}, Move: offer.Move, Since: offer.Since})
	must(b.t, err)
}

// TestInterruptedRounds cuts connections and restarts the target at random moments of several rounds; what a restarted target finds where only its tags
// say that it copied may even be damaged.
func TestInterruptedRounds(t *testing.T) {
	for seed := range uint64(3) {
		random, cutting := rand.New(rand.NewPCG(3, seed)), rand.New(rand.NewPCG(4, seed))
		var mu sync.Mutex // of cutting and cuts
		cuts := 12
		b := newBed(t, 40*lvm.MiB, func(c net.Conn) net.Conn {
			mu.Lock()
			defer mu.Unlock()
			if cuts--; cuts < 0 || cutting.IntN(3) == 0 {
				return c
			}
			return &cutConn{Conn: c, left: cutting.IntN(8 << 20)}
		})
		_, err := b.engine.change(b.id, func(v *lvm.Volume) error { v.Class, v.Record = thinClass, "a record"; return nil })
		must(t, err)
		var last Progress
		for number := 1; number <= 5; number++ {
			for range 20 {
				at := lvm.Bytes(random.Int64N(int64(39 * lvm.MiB)))
				data := make([]byte, random.IntN(1<<20))
				if random.IntN(2) == 0 {
					_, _ = rand.NewChaCha8([32]byte{byte(number), byte(seed)}).Read(data)
				}
				copy(b.content[at:], data)
			}
			b.write(0, nil)
			var offer Offer
			if number < 5 {
				offer = b.round(number)
			} else {
				offer = b.hold()
			}
			for range random.IntN(4) {
				_, err := b.target.Receive(t.Context(), offer, thinClass)
				must(t, err)
				time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
				b.interrupt(offer, random)
			}
			last = b.copyOf(offer)
			for len(b.engine.rounds) > 1 {
				b.dropFirst()
			}
		}
		last.Done, last.Total = lvm.Bytes(len(b.content)), lvm.Bytes(len(b.content))
		b.check(last)
	}
}

// interrupt starts another process on the target. Sometimes the tags vouch for a part, in which a chunk is damaged that this round has.
func (b *bed) interrupt(offer Offer, random *rand.Rand) {
	b.t.Helper()
	b.endTarget()
	id := lvm.ID{VG: targetVG, LV: "pvc"}
	v := b.engine.volume(id)
	if v.State == lvm.StateReceiving && v.Base != offer.Move && v.Base == offer.Since && v.Base != "" && random.IntN(2) == 0 {
		changes, err := b.engine.Changes(b.t.Context(), b.id, "source", offer.Since, offer.Move)
		must(b.t, err)
		if chunk, more := changes.Next(0); more {
			file, err := os.OpenFile(b.engine.file(id), os.O_RDWR, 0)
			must(b.t, err)
			_, err = file.WriteAt([]byte("damage"), chunk*int64(deltaSize))
			must(b.t, err)
			must(b.t, file.Close())
			_, err = b.engine.change(id, func(v *lvm.Volume) error {
				v.Copied = max(v.Copied, lvm.Bytes(chunk+1)*lvm.ChangeUnit)
				return nil
			})
			must(b.t, err)
		}
	}
	b.newTarget()
}

// TestHostileRounds: a source that skips what it may not fails the attempt.
func TestHostileRounds(t *testing.T) {
	for what, c := range map[string]struct {
		skip  []int64
		ended bool
	}{
		"nothing":         {[]int64{0}, false},
		"too much":        {[]int64{33}, false},
		"too much, later": {[]int64{16, 17}, false},
		"a negative part": {[]int64{-1}, false},
		"no end":          {[]int64{32}, false},
		"all of it":       {[]int64{32}, true},
	} {
		b, _ := newRounds(t, 2*lvm.MiB)
		first := b.round(1)
		b.copyOf(first)
		key, err := newIdentity()
		must(t, err)
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		must(t, err)
		var body bytes.Buffer
		digest := newFrames(nil, false, true).digest
		for _, n := range c.skip {
			body.Write(skipFrame(n))
			digest.Write(skipFrame(n))
		}
		if c.ended {
			body.WriteByte(frameEnd)
			body.Write(digest.Sum(nil))
		}
		server := &http.Server{TLSConfig: key.serverTLS(), ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(sizeHeader, strconv.Itoa(2<<20))
			w.Header().Set(changedHeader, "-5")
			_, _ = io.Copy(w, bytes.NewReader(body.Bytes()))
		}), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
		go func() { _ = server.ServeTLS(listener, "", "") }()
		offer := b.round(2)
		offer.Address, offer.Key = listener.Addr().String(), key.id
		p := b.receive2(offer, func(p Progress) bool { return hasFailed(p) || hasRound(offer)(p) })
		if hasRound(offer)(p) != c.ended {
			t.Errorf("%s: %+v", what, p)
		}
		must(t, server.Close())
	}
}

// receive2 is receive for a thin volume.
func (b *bed) receive2(offer Offer, until func(Progress) bool) Progress {
	b.t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		p, err := b.target.Receive(b.t.Context(), offer, thinClass)
		must(b.t, err)
		if until(p) {
			return p
		}
		if time.Since(start) > time.Minute {
			b.t.Fatalf("no such outcome: %+v", p)
		}
	}
}

// TestUselessRound: a round that the engine cannot compare is not offered.
func TestUselessRound(t *testing.T) {
	b, _ := newRounds(t, 2*lvm.MiB)
	b.copyOf(b.round(1))
	b.engine.incomparable = errors.New("no thin_delta")
	must(t, b.source.TakeRound(t.Context(), b.id, "source", 2, 0))
	if _, err := b.source.OfferRound(t.Context(), b.engine.volume(b.id), b.engine.rounds[1]); err == nil || !strings.Contains(err.Error(), "thin_delta") {
		t.Error(err)
	}
}

// TestCancelledRound: a round that is being sent can be removed, and is not sent any more.
func TestCancelledRound(t *testing.T) {
	b, _ := newRounds(t, 64*lvm.MiB)
	b.source.server.limit.rate = MinRate
	offer := b.round(1)
	b.receive2(offer, func(Progress) bool {
		b.source.server.mu.Lock()
		defer b.source.server.mu.Unlock()
		return len(b.source.server.pulls) > 0
	})
	b.dropFirst()
	if p := b.receive2(offer, hasFailed); p.Volume.Base != "" {
		t.Errorf("%+v", p)
	}
}

// compared counts the comparisons of volumes of this size.
type compared struct {
	held
	size  lvm.Bytes
	count int
}

func (e *compared) Changes(context.Context, lvm.ID, string, string, string) (*lvm.Changes, error) {
	e.count++
	return lvm.NewChanges(e.size), nil
}

// TestManyComparisons: a node that is drained compares each of its volumes once, however many there are. Large ones take no more memory than maxCached.
func TestManyComparisons(t *testing.T) {
	for _, test := range []struct {
		volumes, want int
		size          lvm.Bytes
	}{{100, 100, 10 * lvm.GiB}, {1, 1, 12 * lvm.TiB}, {3, 6, 4 * lvm.TiB}} {
		e, c := &compared{size: test.size}, changesCache{}
		for n := range 2 * test.volumes {
			id := lvm.ID{VG: sourceVG, LV: fmt.Sprint("pvc-", n%test.volumes)}
			_, err := c.of(t.Context(), e, query{id: id, since: "since", move: "move"})
			must(t, err)
			if size := c.size(); size > max(maxCached, lvm.NewChanges(test.size).Memory()) {
				t.Fatalf("%s of memory after %d of %s", size, n+1, test.size)
			}
		}
		if e.count != test.want {
			t.Errorf("%d volumes of %s were compared %d times, want %d", test.volumes, test.size, e.count, test.want)
		}
	}
}

// slow is an engine that compares until it may end.
type slow struct {
	held
	count int
	ends  chan struct{}
}

func (e *slow) Changes(ctx context.Context, _ lvm.ID, _, _, _ string) (*lvm.Changes, error) {
	e.count++
	select {
	case <-e.ends:
		return lvm.NewChanges(lvm.GiB), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestSlowComparison: a comparison that takes longer than any request may goes on, and the next requests find it. One of them waits, and the others do
// not: the agent that asks has other moves, and may have to cancel this one. Only the end of the process ends it.
func TestSlowComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		e, c := &slow{ends: make(chan struct{})}, changesCache{ended: ended}
		q := query{id: lvm.ID{VG: sourceVG, LV: "pvc"}, since: "since", move: "move"}
		ask := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			_, err := c.of(ctx, e, q)
			return err
		}
		start := time.Now()
		for range 30 {
			if err := ask(); !errors.Is(err, ErrComparing) || lvm.KindOf(err) != lvm.KindBusy {
				t.Fatal(err)
			}
		}
		if waited := time.Since(start); waited != compareWait {
			t.Errorf("30 requests waited %s in all", waited)
		}
		close(e.ends)
		synctest.Wait()
		if err := ask(); err != nil || e.count != 1 {
			t.Errorf("after %d comparisons: %v", e.count, err)
		}
		e.ends, q.move = make(chan struct{}), "another"
		if err := ask(); !errors.Is(err, ErrComparing) {
			t.Error(err)
		}
		close(ended)
		c.work.Wait()
	})
}

// endless is an engine that compares until its context ends.
type endless struct{ held }

func (endless) Changes(ctx context.Context, _ lvm.ID, _, _, _ string) (*lvm.Changes, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestBoundedComparisons: a peer that asks for more and more comparisons while one takes long, and waits for none, has the source remember few.
func TestBoundedComparisons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		e, c := endless{}, changesCache{ended: ended}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for n := range 2 * maxComparisons {
			q := query{id: lvm.ID{VG: sourceVG, LV: "pvc"}, since: fmt.Sprint(n), move: "move"}
			if _, err := c.of(gone, e, q); !errors.Is(err, ErrComparing) {
				t.Fatal(err)
			}
		}
		if running := len(c.running); running > maxComparisons {
			t.Errorf("%d comparisons wait", running)
		}
		close(ended)
		c.work.Wait()
	})
}

// stuck is an engine that removes a round only when no caller waits any more.
type stuck struct{ Engine }

func (stuck) DropRound(ctx context.Context, _ lvm.ID, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestRemovalWaitsForComparison: who has a round removed does not wait for the end of a long comparison: other moves would wait, too.
func TestRemovalWaitsForComparison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, start := &Node{cfg: Config{Engine: stuck{}}, server: &server{}}, time.Now()
		if err := n.DropRound(t.Context(), lvm.Round{}); err == nil || time.Since(start) != compareWait {
			t.Errorf("after %s: %v", time.Since(start), err)
		}
	})
}

// pools is an engine that knows how full its pools are.
type pools struct {
	*files
	full error
}

func (e *pools) FitsPool(context.Context, lvm.Round) error    { return e.full }
func (e *pools) DropUnneededRounds(ctx context.Context) error { return ctx.Err() }

// TestFullPool: a round goes when its pool becomes too full, whether or not an API server says what becomes of the move. That of a held volume stays: it
// does not grow, and without it everything would be copied again while the pods are stopped.
func TestFullPool(t *testing.T) {
	b, _ := newRounds(t, 2*lvm.MiB)
	e := &pools{files: b.engine}
	b.source.cfg.Engine = e
	left := func(want int) {
		t.Helper()
		must(t, b.source.DropUnneededRounds(t.Context()))
		if got := len(b.engine.rounds); got != want {
			t.Errorf("%d rounds are left, want %d", got, want)
		}
	}
	b.copyOf(b.round(1))
	left(1)
	b.hold()
	e.full = lvm.Errorf(lvm.KindInsufficientCapacity, "too full")
	left(1)
	must(t, b.source.Cancel(t.Context(), b.id, "source"))
	left(0)
	b.round(1)
	e.full = errors.New("the kernel does not say")
	if err := b.source.DropUnneededRounds(t.Context()); !errors.Is(err, e.full) || len(b.engine.rounds) != 1 {
		t.Errorf("%v, and %d rounds are left", err, len(b.engine.rounds))
	}
}
