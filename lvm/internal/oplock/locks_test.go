package oplock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

func TestLocksEndWithContext(t *testing.T) {
	var l locks
	unlock, err := l.lock(t.Context(), "vg")
	fixture.Must(t, err)
	other, err := l.lock(t.Context(), "other")
	fixture.Must(t, err)
	other()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.lock(ctx, "vg"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a held lock: %v", err)
	}
	unlock()
	unlock, err = l.lock(t.Context(), "vg")
	fixture.Must(t, err)
	unlock()
	if len(l.held) != 0 {
		t.Errorf("unused locks are kept: %v", l.held)
	}
}

// TestLockOrder: lockFirst goes before lock, which then gets as many turns as lockFirst owes. lockLast gets the lock when it
// has no other waiters, or when its patience ends. A caller that has left gets nothing.
func TestLockOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l locks
		unlock, err := l.lock(t.Context(), "vg")
		fixture.Must(t, err)
		var order []string
		queue := func(ctx context.Context, name string, lock func(context.Context, lvm.VGUUID) (func(), error)) {
			go func() {
				unlock, err := lock(ctx, "vg")
				if err == nil {
					order = append(order, name)
					unlock()
				}
			}()
			synctest.Wait()
		}
		first := func(owes int) func(context.Context, lvm.VGUUID) (func(), error) {
			return func(ctx context.Context, key lvm.VGUUID) (func(), error) { return l.lockFirst(ctx, key, owes) }
		}
		last := func(patience time.Duration) func(context.Context, lvm.VGUUID) (func(), error) {
			return func(ctx context.Context, key lvm.VGUUID) (func(), error) { return l.lockLast(ctx, key, patience) }
		}
		leaving, leave := context.WithCancel(t.Context())
		queue(t.Context(), "patient", last(time.Hour))
		queue(leaving, "gone last", last(time.Hour))
		queue(t.Context(), "create 1", l.lock)
		queue(t.Context(), "impatient", last(time.Nanosecond))
		time.Sleep(time.Second)
		queue(leaving, "gone", l.lock)
		queue(leaving, "gone first", first(9))
		for i := range 4 {
			queue(t.Context(), fmt.Sprintf("create %d", 2+i), l.lock)
		}
		queue(t.Context(), "mark 1", first(2))
		queue(t.Context(), "mark 2", first(1))
		queue(t.Context(), "mark 3", first(1))
		queue(t.Context(), "mark 4", first(1))
		leave()
		synctest.Wait()
		unlock()
		synctest.Wait()
		want := []string{"mark 1", "create 1", "impatient", "mark 2", "create 2", "mark 3", "create 3", "mark 4", "create 4", "create 5", "patient"}
		if !slices.Equal(order, want) {
			t.Errorf("order of the holders %q, want %q", order, want)
		}
		if len(l.held) != 0 {
			t.Errorf("unused locks are kept: %v", l.held)
		}
	})
}

// TestInFlight: equal requests share one run and its answer, any other request is refused, a caller that leaves does not stop
// the run, and close waits for it.
func TestInFlight(t *testing.T) {
	var f InFlight
	began, finish := make(chan struct{}), make(chan struct{})
	runs := 0
	run := func(ctx context.Context) (int, error) {
		runs++
		close(began)
		<-finish
		return 7, ctx.Err()
	}
	leaving, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := Do(leaving, &f, "v", "create", run)
		left <- err
	}()
	<-began
	joined, err := f.join("v", "create", nil) // never run: it joins
	fixture.Must(t, err)
	if _, err := Do(t.Context(), &f, "v", "delete", run); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("another request for the volume: %v", err)
	}
	leave()
	if err := <-left; lvm.KindOf(err) != lvm.KindBusy || !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left got %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := f.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closing with an operation in flight: %v", err)
	}
	close(finish)
	<-joined.done
	if joined.answer != 7 || joined.err != nil {
		t.Errorf("the request that joined got %v, %v", joined.answer, joined.err)
	}
	fixture.Must(t, f.Close(t.Context()))
	if _, err := Do(t.Context(), &f, "v", "create", run); lvm.KindOf(err) != lvm.KindBusy || runs != 1 {
		t.Errorf("after closing: %v; %d runs", err, runs)
	}
}
