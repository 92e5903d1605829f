package lvm

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
)

// TestCloseAwaitsAll: when Close has returned, nothing works behind any more, whatever was begun while it closed.
func TestCloseAwaitsAll(t *testing.T) {
	for range 2000 {
		h := NewHostOn(Config{}, Machine{})
		var closed atomic.Bool
		var late atomic.Int32
		begun := make(chan struct{})
		go func() {
			defer close(begun)
			for range 20 {
				h.behind(func(context.Context) {
					runtime.Gosched()
					if closed.Load() {
						late.Add(1)
					}
				})
			}
		}()
		must(t, h.Close(t.Context()))
		closed.Store(true)
		<-begun
		h.background.Wait()
		if n := late.Load(); n > 0 {
			t.Fatalf("%d were at work after Close", n)
		}
	}
}
