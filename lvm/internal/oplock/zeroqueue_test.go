package oplock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestZeroQueueOrder: the smallest goes first, and every fourth turn goes to the longest waiter.
func TestZeroQueueOrder(t *testing.T) {
	var w ZeroQueue
	first, err := w.Wait(t.Context(), "vg", 100)
	fixture.Must(t, err)
	type granted struct {
		left lvm.Bytes
		turn *ZeroSlot
	}
	order := make(chan granted)
	sizes := []lvm.Bytes{90, 50, 10, 40, 30, 20, 60}
	for i, left := range sizes {
		go func() {
			turn, err := w.Wait(context.Background(), "vg", left)
			if err == nil {
				order <- granted{left, turn}
			}
		}()
		waitUntil(t, func() bool { return w.waitingIn("vg") == i+1 })
	}
	other, err := w.Wait(t.Context(), "other", 1)
	fixture.Must(t, err)
	other.End()
	first.End()
	var got []lvm.Bytes
	for range sizes {
		next := <-order
		got = append(got, next.left)
		next.turn.End()
	}
	if want := []lvm.Bytes{10, 20, 90, 30, 40, 50, 60}; !slices.Equal(got, want) {
		t.Errorf("in the order %v, want %v", got, want)
	}
}

// TestZeroQueuePreempts: a smaller volume takes over after 1 GiB of a larger one, which continues afterwards.
func TestZeroQueuePreempts(t *testing.T) {
	var w ZeroQueue
	large, err := w.Wait(t.Context(), "vg", 1000)
	fixture.Must(t, err)
	small := make(chan *ZeroSlot)
	go func() {
		turn, err := w.Wait(context.Background(), "vg", 10)
		if err == nil {
			small <- turn
		}
	}()
	waitUntil(t, func() bool { return w.waitingIn("vg") == 1 })
	for range slotChunks - 1 {
		large.Pause(t.Context(), 900)
		if w.waitingIn("vg") != 1 {
			t.Fatal("it ended its turn too early")
		}
	}
	ended := make(chan bool)
	go func() {
		turn := <-small
		turn.Pause(context.Background(), 5) // no smaller one waits
		turn.End()
		ended <- true
	}()
	large.Pause(t.Context(), 900)
	<-ended
	large.End()
	if w.waitingIn("vg") != 0 || w.groups["vg"].holder != nil {
		t.Error("a turn is left")
	}
}

// TestZeroQueueWaiterLeaves: a waiter that stops waiting gets no turn.
func TestZeroQueueWaiterLeaves(t *testing.T) {
	var w ZeroQueue
	first, err := w.Wait(t.Context(), "vg", 1)
	fixture.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Wait(ctx, "vg", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: %v", err)
	}
	first.End()
	second, err := w.Wait(t.Context(), "vg", 1)
	fixture.Must(t, err)
	second.End()
}

func (w *ZeroQueue) waitingIn(group lvm.VGUUID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.groups[group].waiting)
}

func waitUntil(t testing.TB, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(wait.Limit(10 * time.Second)); !is(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the condition does not become true")
		}
	}
}
