package oplock

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// LockHeld reports the lock that lvm takes, and never takes one from lvm.
func TestLockHeld(t *testing.T) {
	dir := t.TempDir()
	expect := func(what string, held bool) {
		t.Helper()
		if got, err := LockHeld(dir, "vg"); err != nil || (got > 0) != held || got > time.Minute {
			t.Errorf("%s: %s, %v", what, got, err)
		}
	}
	expect("no file", false)
	file, err := os.OpenFile(filepath.Join(dir, "V_vg"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600) // as lvm does
	fixture.Must(t, err)
	defer func() { _ = file.Close() }()
	expect("an unlocked file", false)
	fixture.Must(t, unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	expect("held", true)
	fixture.Must(t, unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB))
	expect("shared by readers", false)
	fixture.Must(t, unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)) // the check has released its shared lock
	if got, err := LockHeld("", "vg"); got != 0 || err != nil {
		t.Errorf("without a directory: %s, %v", got, err)
	}
}

// TestLockVG: a waiter does not accept the lock of a file that has been removed.
func TestLockVG(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "V_vg")
	first, err := LockVG(t.Context(), dir, "vg")
	fixture.Must(t, err)
	got := make(chan func(), 1)
	go func() {
		second, err := LockVG(t.Context(), dir, "vg")
		if err != nil {
			t.Error(err)
		}
		got <- second
	}()
	time.Sleep(250 * time.Millisecond) // it waits by now
	select {
	case <-got:
		t.Fatal("both have the lock")
	default:
	}
	first()
	second := <-got
	if held, err := LockHeld(dir, "vg"); err != nil || held == 0 {
		t.Errorf("lvm would not see the lock: %s, %v", held, err)
	}
	second()
	if fixture.Exists(path) {
		t.Error("the file is still there")
	}
	if unlock, err := LockVG(t.Context(), "", "vg"); err != nil {
		t.Error(err)
	} else {
		unlock()
	}
}
