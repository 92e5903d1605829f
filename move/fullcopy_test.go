package move

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// snapshots is an engine whose snapshots are files, and which counts their readers.
type snapshots struct {
	*files
	mu       sync.Mutex
	released int
	missing  bool
}

func (e *snapshots) SnapshotDevice(_ context.Context, id lvm.ID, uuid string) (string, error) {
	if e.missing || uuid != "snapshot" {
		return "", lvm.Errorf(lvm.KindNotFound, "no snapshot %s", id)
	}
	return e.file(id), nil
}

func (e *snapshots) ReleaseSnapshot(context.Context, lvm.ID, string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.released++
	return nil
}

// asked records what an Authorizer was asked, and refuses some claims.
type asked struct {
	mu      sync.Mutex
	claims  []string
	refused string
}

func (a *asked) MayPull(_ context.Context, r Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.claims, r.Claim) {
		a.claims = append(a.claims, r.Claim)
	}
	if r.Claim == a.refused {
		return lvm.Errorf(lvm.KindInvalid, "not this claim")
	}
	return nil
}

// newSnapshot is a bed whose source has a snapshot.
func newSnapshot(t *testing.T, size lvm.Bytes) (*bed, *snapshots, *asked, Offer) {
	t.Helper()
	b := newBed(t, size, nil)
	e, a := &snapshots{files: b.engine}, &asked{}
	b.source.server.engine, b.source.server.authorizer = e, a
	sn := lvm.Snapshot{ID: lvm.ID{VG: sourceVG, LV: "s-1"}, UUID: "snapshot", Size: size}
	must(t, os.WriteFile(b.engine.file(sn.ID), b.content, 0o600))
	return b, e, a, b.source.Offer(sn)
}

var thinSpec = lvm.Spec{Name: "pvc", Claim: "shop/data", Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin}, Source: lvm.ID{VG: sourceVG, LV: "s-1"}}

func (b *bed) fetch(offer Offer, claim string, spec lvm.Spec, until func(Progress) bool) Progress {
	b.t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		p, err := b.target.Fetch(b.t.Context(), offer, claim, spec)
		must(b.t, err)
		if until(p) {
			return p
		}
		if time.Since(start) > 2*time.Minute {
			b.t.Fatalf("no such outcome: %+v", p)
		}
	}
}

// TestFetch: claims get the content of one snapshot at the same time, also into a larger volume; the source says for which claim each pull is, and
// releases the snapshot after each.
func TestFetch(t *testing.T) {
	b, e, a, offer := newSnapshot(t, 9*lvm.MiB+4096)
	spec := thinSpec
	spec.Required = 16 * lvm.MiB
	first, second := ClaimOf("shop", "data-1", "uid-1"), ClaimOf("shop", "data-2", "uid-2")
	one := b.fetch(offer, first, spec, func(p Progress) bool { return p.Running || isReceived(p) })
	spec.Name = "pvc-2"
	two := b.fetch(offer, second, spec, isReceived)
	b.check(two)
	spec.Name = "pvc"
	b.check(b.fetch(offer, first, spec, isReceived))
	if one.Volume.Move == two.Volume.Move || lvm.CheckMove(one.Volume.Move) != nil {
		t.Errorf("the copies are %q and %q", one.Volume.Move, two.Volume.Move)
	}
	slices.Sort(a.claims)
	if !slices.Equal(a.claims, []string{first, second}) {
		t.Errorf("authorized: %q", a.claims)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.released < 2 {
		t.Errorf("released %d times", e.released)
	}
}

// TestFetchResumes: another process of the target continues, and compares with the snapshot what the former one wrote.
func TestFetchResumes(t *testing.T) {
	b, _, _, offer := newSnapshot(t, 12*lvm.MiB)
	spec, claim := thinSpec, ClaimOf("shop", "data", "uid")
	spec.Required = 12 * lvm.MiB
	p := b.fetch(offer, claim, spec, isReceived)
	_, err := b.engine.change(p.Volume.ID, func(v *lvm.Volume) error { v.Copied, v.State = 7*lvm.MiB, lvm.StateReceiving; return nil })
	must(t, err)
	damaged := bytes.Clone(b.content)
	copy(damaged[3*lvm.MiB:], "damage")
	clear(damaged[7*lvm.MiB:])
	file, err := os.OpenFile(b.engine.file(p.Volume.ID), os.O_RDWR, 0)
	must(t, err)
	_, err = file.WriteAt(damaged, 0)
	must(t, err)
	must(t, file.Close())
	b.newTarget()
	b.check(b.fetch(offer, claim, spec, isReceived))
}

// TestFetchRefused: a claim that the source refuses gets nothing, nor does a request for a snapshot without a claim, or for a volume with one. What an
// offer says must fit the claim.
func TestFetchRefused(t *testing.T) {
	b, e, a, offer := newSnapshot(t, 4*lvm.MiB)
	spec, claim := thinSpec, ClaimOf("shop", "data", "uid")
	spec.Required = 4 * lvm.MiB
	fails := func(what, says string) {
		t.Helper()
		if p := b.fetch(offer, claim, spec, hasFailed); p.Done != 0 || !strings.Contains(p.Problem.Error(), says) {
			t.Errorf("%s: %+v", what, p)
		}
		must(t, b.target.Discard(t.Context(), lvm.ID{VG: targetVG, LV: "pvc"}, "target"))
	}
	a.refused = claim
	fails("a refused claim", "403")
	a.refused = ""
	e.missing = true
	fails("no snapshot", "no snapshot")
	e.missing = false
	p := b.receive(Offer{Volume: offer.Volume, UUID: "snapshot", Move: strings.Repeat("0", 32), Name: "pvc", Class: testClass, Size: 4 * lvm.MiB, Address: offer.Address, Key: offer.Key}, hasFailed)
	if p.Done != 0 || !strings.Contains(p.Problem.Error(), "400") {
		t.Errorf("a snapshot without a claim: %+v", p)
	}
	must(t, b.target.Discard(t.Context(), lvm.ID{VG: targetVG, LV: "pvc"}, "target"))
	held := b.hold()
	wrong := offer
	wrong.Volume, wrong.UUID = held.Volume, held.UUID
	if p := b.fetch(wrong, claim, spec, hasFailed); p.Done != 0 || !strings.Contains(p.Problem.Error(), "400") {
		t.Errorf("a volume with a claim: %+v", p)
	}
	for what, spoil := range map[string]func(o *Offer, claim *string, s *lvm.Spec){
		"larger than the claim": func(o *Offer, _ *string, _ *lvm.Spec) { o.Size += 4 * lvm.MiB },
		"no size":               func(o *Offer, _ *string, _ *lvm.Spec) { o.Size = 0 },
		"a round":               func(o *Offer, _ *string, _ *lvm.Spec) { o.Round = true },
		"a former round":        func(o *Offer, _ *string, _ *lvm.Spec) { o.Since = strings.Repeat("0", 32) },
		"a format mark":         func(o *Offer, _ *string, _ *lvm.Spec) { o.FormatMark = 4096 },
		"another encryption":    func(o *Offer, _ *string, _ *lvm.Spec) { o.Class.Encryption = lvm.EncryptionLUKS2 },
		"no claim":              func(_ *Offer, claim *string, _ *lvm.Spec) { *claim = "" },
		"a long claim":          func(_ *Offer, claim *string, _ *lvm.Spec) { *claim = strings.Repeat("x", maxClaim+1) },
		"no source":             func(_ *Offer, _ *string, s *lvm.Spec) { s.Source = lvm.ID{} },
		"another layout":        func(_ *Offer, _ *string, s *lvm.Spec) { s.Class.Layout = lvm.LayoutLinear },
	} {
		o, c, s := offer, claim, spec
		s.Name = "never"
		spoil(&o, &c, &s)
		if _, err := b.target.Fetch(t.Context(), o, c, s); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	if _, made := b.engine.volumes[lvm.ID{VG: targetVG, LV: "never"}]; made {
		t.Error("a refused request made a volume")
	}
}

// TestFetchesLeaveRoomForMoves: full copies have their own places, at the source and at the target.
func TestFetchesLeaveRoomForMoves(t *testing.T) {
	b, _, _, offer := newSnapshot(t, 64*lvm.MiB)
	b.source.server.limit.rate = MinRate
	spec := thinSpec
	spec.Required = 64 * lvm.MiB
	for _, name := range []string{"pvc-1", "pvc-2"} {
		spec.Name = name
		b.fetch(offer, ClaimOf("shop", name, name), spec, func(p Progress) bool { return p.Running })
	}
	spec.Name = "pvc-3"
	if p := b.fetch(offer, ClaimOf("shop", "3", "3"), spec, func(Progress) bool { return true }); p.Running {
		t.Errorf("a third one: %+v", p)
	} else if want := "waits for its turn: the target receives 2 volumes at a time, now claim \"data\", claim \"data\""; p.Problem == nil || p.Problem.Error() != want {
		t.Errorf("a third one says %v, want %s", p.Problem, want)
	}
	moving := b.hold()
	b.receive(moving, func(p Progress) bool { return p.Running && p.Problem == nil })
}
