package docrun

import (
	"context"
	"fmt"
	"strings"
	"sync"
)

// watched collects what a shell prints, for a reader that waits for the end of a block.
type watched struct {
	mu     sync.Mutex
	text   strings.Builder
	more   chan struct{} // closed and replaced when text grows
	closed bool
	cause  error // of the end
}

func newWatched() *watched { return &watched{more: make(chan struct{})} }

// Write implements io.Writer.
func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	w.wake()
	return len(p), nil
}

// close says that the shell has ended: with -e, it does at the first command that fails.
func (w *watched) close(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed, w.cause = true, cause
	w.wake()
}

func (w *watched) wake() {
	close(w.more)
	w.more = make(chan struct{})
}

// until returns what was printed before end, and forgets it.
func (w *watched) until(ctx context.Context, end string) (string, error) {
	for {
		w.mu.Lock()
		text, more, closed := w.text.String(), w.more, w.closed
		before, after, found := strings.Cut(text, end)
		if found {
			w.text.Reset()
			w.text.WriteString(after)
		}
		w.mu.Unlock()
		switch {
		case found:
			return before, nil
		case closed:
			return text, fmt.Errorf("the shell ended: %w", w.cause)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return text, fmt.Errorf("the commands did not end: %w", context.Cause(ctx))
		}
	}
}
