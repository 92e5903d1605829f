package oplock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// asked is a context that reports when a caller reads its Err.
type asked struct {
	context.Context
	tell func()
}

func (a asked) Err() error {
	err := a.Context.Err()
	a.tell()
	return err
}

// TestDrainAwaitsAll: after Drain no work runs in the background, not even work that was about to begin meanwhile.
func TestDrainAwaitsAll(t *testing.T) {
	tasks := NewTasks()
	closed := make(chan struct{})
	closing := sync.OnceFunc(func() { // Stop and Drain begin once the work has passed its check, and gets time to end
		go func() {
			defer close(closed)
			tasks.Stop()
			if err := tasks.Drain(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-closed:
		case <-time.After(100 * time.Millisecond):
		}
	})
	tasks.closing = asked{tasks.closing, closing}
	var late atomic.Bool
	tasks.Start(func(context.Context) {
		select {
		case <-closed:
			late.Store(true)
		default:
		}
	})
	<-closed
	tasks.running.Wait()
	if late.Load() {
		t.Error("work ran after Drain")
	}
}
