package host

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
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

// TestCloseAwaitsAll: after Close no work runs in the background, not even work that was about to begin meanwhile.
func TestCloseAwaitsAll(t *testing.T) {
	h := NewHostOn(lvm.Config{}, lvm.Machine{})
	closed := make(chan struct{})
	closing := sync.OnceFunc(func() { // Close begins once the work has passed its check, and gets time to end
		go func() {
			defer close(closed)
			if err := h.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		select {
		case <-closed:
		case <-time.After(100 * time.Millisecond):
		}
	})
	h.closing = asked{h.closing, closing}
	var late atomic.Bool
	h.runInBackground(func(context.Context) {
		select {
		case <-closed:
			late.Store(true)
		default:
		}
	})
	<-closed
	h.background.Wait()
	if late.Load() {
		t.Error("work ran after Close")
	}
}

func TestNewHostWritesConfig(t *testing.T) {
	dir := t.TempDir()
	cfg := lvm.Config{SystemDir: filepath.Join(dir, "a/etc"), LockDir: filepath.Join(dir, "lock"), BackupDir: filepath.Join(dir, "backup")}
	if _, err := NewHost(cfg); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(cfg.SystemDir, "lvm.conf"), cfg.LockDir, cfg.BackupDir} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := NewHost(lvm.Config{}); lvm.KindOf(err) != lvm.KindInvalid {
		t.Errorf("without a directory for its configuration: %v", err)
	}
}
