package move

import (
	"context"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// limiter bounds the rate of all copies of a node in one direction.
type limiter struct {
	rate lvm.Bytes // per second; 0: no limit

	mu   sync.Mutex
	free time.Time // when the next byte may pass
}

// wait returns when so many bytes may pass, or with ctx's error.
func (l *limiter) wait(ctx context.Context, n int) error {
	if l.rate == 0 {
		return ctx.Err()
	}
	l.mu.Lock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	until := l.free
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	l.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(until)):
		return nil
	}
}
