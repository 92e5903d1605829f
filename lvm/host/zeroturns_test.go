package host

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestTurns: the smallest goes first, and every fourth turn goes to the longest waiter.
func TestTurns(t *testing.T) {
	var w turns
	first, err := w.wait(t.Context(), "vg", 100)
	fixture.Must(t, err)
	type granted struct {
		left lvm.Bytes
		turn *turn
	}
	order := make(chan granted)
	sizes := []lvm.Bytes{90, 50, 10, 40, 30, 20, 60}
	for i, left := range sizes {
		go func() {
			turn, err := w.wait(context.Background(), "vg", left)
			if err == nil {
				order <- granted{left, turn}
			}
		}()
		waitUntil(t, func() bool { return w.waitingIn("vg") == i+1 })
	}
	other, err := w.wait(t.Context(), "other", 1)
	fixture.Must(t, err)
	other.end()
	first.end()
	var got []lvm.Bytes
	for range sizes {
		next := <-order
		got = append(got, next.left)
		next.turn.end()
	}
	if want := []lvm.Bytes{10, 20, 90, 30, 40, 50, 60}; !slices.Equal(got, want) {
		t.Errorf("in the order %v, want %v", got, want)
	}
}

// TestTurnsPause: a smaller volume takes over after 1 GiB of a larger one, which continues afterwards.
func TestTurnsPause(t *testing.T) {
	var w turns
	large, err := w.wait(t.Context(), "vg", 1000)
	fixture.Must(t, err)
	small := make(chan *turn)
	go func() {
		turn, err := w.wait(context.Background(), "vg", 10)
		if err == nil {
			small <- turn
		}
	}()
	waitUntil(t, func() bool { return w.waitingIn("vg") == 1 })
	for range turnChunks - 1 {
		large.pause(t.Context(), 900)
		if w.waitingIn("vg") != 1 {
			t.Fatal("it ended its turn too early")
		}
	}
	ended := make(chan bool)
	go func() {
		turn := <-small
		turn.pause(context.Background(), 5) // no smaller one waits
		turn.end()
		ended <- true
	}()
	large.pause(t.Context(), 900)
	<-ended
	large.end()
	if w.waitingIn("vg") != 0 || w.groups["vg"].holder != nil {
		t.Error("a turn is left")
	}
}

// TestTurnsGiveUp: a waiter that stops waiting gets no turn.
func TestTurnsGiveUp(t *testing.T) {
	var w turns
	first, err := w.wait(t.Context(), "vg", 1)
	fixture.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.wait(ctx, "vg", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: %v", err)
	}
	first.end()
	second, err := w.wait(t.Context(), "vg", 1)
	fixture.Must(t, err)
	second.end()
}

func (w *turns) waitingIn(group string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.groups[group].waiting)
}

func waitUntil(t testing.TB, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the condition does not become true")
		}
	}
}
