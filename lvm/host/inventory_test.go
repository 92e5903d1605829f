package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

func TestParseThin(t *testing.T) {
	for params, want := range map[string]lvm.Bytes{"4096 8191": 2 * lvm.MiB, "0 -": 0, "8": 4 * lvm.KiB} {
		if got, err := parseThin(params); err != nil || got != want {
			t.Errorf("%q: %d, %v", params, got, err)
		}
	}
	for _, params := range []string{"", "Fail", "Error", "-1 0", "99999999999999999 1"} {
		if got, err := parseThin(params); err == nil {
			t.Errorf("%q: %d", params, got)
		}
	}
}

// LockHeld reports the lock that lvm takes, and never takes one from lvm.
func TestLockHeld(t *testing.T) {
	dir := t.TempDir()
	expect := func(what string, held bool) {
		t.Helper()
		if got, err := oplock.LockHeld(dir, "vg"); err != nil || (got > 0) != held || got > time.Minute {
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
	if got, err := oplock.LockHeld("", "vg"); got != 0 || err != nil {
		t.Errorf("without a directory: %s, %v", got, err)
	}
}

// TestOursAlone: a group belongs to the driver alone if every volume in it does.
func TestOursAlone(t *testing.T) {
	ours := lvm.LV{Name: "v", Tags: []string{"nodelvm.v=1"}}
	for what, c := range map[string]struct {
		lvs  []lvm.LV
		want bool
	}{
		"no volume":         {nil, true},
		"the driver's":      {[]lvm.LV{ours, {Name: "v_rimage_0", Hidden: true}}, true},
		"one of the node's": {[]lvm.LV{ours, {Name: "root"}}, false},
	} {
		if got := oursAlone((lvm.Group{LVs: c.lvs})); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
