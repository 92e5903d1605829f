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

// asked is a context that tells when it is asked whether it has ended.
type asked struct {
	context.Context
	tell func()
}

func (a asked) Err() error {
	err := a.Context.Err()
	a.tell()
	return err
}

// TestCloseAwaitsAll: when Close has returned, nothing works behind any more, also not what was about to begin meanwhile.
func TestCloseAwaitsAll(t *testing.T) {
	h := NewHostOn(lvm.Config{}, lvm.Machine{})
	closed := make(chan struct{})
	closing := sync.OnceFunc(func() { // Close begins when the work is found not to be too late, and is given time to end
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
		t.Error("something was at work after Close")
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
		t.Errorf("without a folder for its configuration: %v", err)
	}
}
