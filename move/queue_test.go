package move

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// Moves is host.Host's.
func (e *files) Moves(context.Context) (all []lvm.Volume, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.volumes)), nil
}

// add makes another volume of the source, of a claim, and holds it.
func (b *bed) add(claim string) Offer {
	b.t.Helper()
	id := lvm.ID{VG: sourceVG, LV: "pvc-" + strings.ReplaceAll(claim, "/", "-")}
	must(b.t, os.WriteFile(b.engine.file(id), b.content, 0o600))
	b.engine.mu.Lock()
	b.engine.volumes[id] = lvm.Volume{ID: id, UUID: "source", Name: id.LV, Claim: claim, Class: testClass, Size: lvm.Bytes(len(b.content)), State: lvm.StateReady}
	b.engine.mu.Unlock()
	offer, err := b.source.Hold(b.t.Context(), id, "source")
	must(b.t, err)
	return offer
}

func queued(p Progress) bool {
	_, is := errors.AsType[*Queue](p.Problem)
	return is
}

// TestQueue: a copy that waits for others says how many are copied at a time, and which claims of its namespace come first. When it is its turn, it
// says nothing.
func TestQueue(t *testing.T) {
	b := newBed(t, 64*lvm.MiB, nil)
	b.source.server.limit.rate = MinRate
	b.target.cfg.AtOnce = 3
	first := b.add("shop/a")
	for _, offer := range []Offer{first, b.add("bank/b")} {
		b.receive(offer, func(p Progress) bool { return p.Done > 0 })
	}
	waits := b.add("shop/c")
	p := b.receive(waits, queued)
	if want := `waits for its turn: the source sends 2 volumes at a time, now claim "a", 1 more`; p.Problem.Error() != want {
		t.Errorf("at the source: %s, want %s", p.Problem, want)
	}
	b.target.cfg.AtOnce = 2
	p = b.receive(b.add("bank/d"), queued)
	if want := `waits for its turn: the target receives 2 volumes at a time, now claim "b", 1 more`; p.Problem.Error() != want {
		t.Errorf("at the target: %s, want %s", p.Problem, want)
	}
	id, err := lvm.ParseID(first.Volume)
	must(t, err)
	must(t, b.source.Cancel(t.Context(), id, "source"))
	if p := b.receive(waits, func(p Progress) bool { b.target.retryNow(); return p.Running && p.Done > 0 }); p.Problem != nil {
		t.Errorf("while it is copied: %s", p.Problem)
	}
}

// TestBusySource: what a source says of its queue is another node's word.
func TestBusySource(t *testing.T) {
	for said, want := range map[string]string{
		"this node sends other volumes":                        "waits for its turn: the source sends other volumes", // by no JSON
		`{"atOnce":2,"others":2}`:                              "waits for its turn: the source sends 2 volumes at a time, now 2 more",
		`{"atOnce":1,"claims":["a\u001b[31m"],"others":-1}`:    `waits for its turn: the source sends 1 volumes at a time, now claim "a\x1b[31m"`,
		`{"atOnce":9,"claims":["a","b","c","d"]}`:              `waits for its turn: the source sends 9 volumes at a time, now claim "a", claim "b", claim "c"`,
		`{"claims":["` + strings.Repeat("a", maxQueue) + `"]}`: "waits for its turn: the source sends other volumes",
	} {
		if got := busySource(strings.NewReader(said)).Error(); got != want {
			t.Errorf("%.60s: %s, want %s", said, got, want)
		}
	}
}
