package node

import (
	"errors"
	"io"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestTrimmable: only file systems of volumes that are mounted for writing are trimmed, and not while the volume is being staged or
// unstaged.
func TestTrimmable(t *testing.T) {
	f := newFake()
	s := f.server()
	trimmable := func() int {
		t.Helper()
		list, err := s.Trimmable(t.Context())
		must(t, err)
		return len(list)
	}
	if n := trimmable(); n != 0 {
		t.Errorf("%d without a mount", n)
	}
	if _, _, err := s.Trim(t.Context(), testID, 0); lvm.KindOf(err) != lvm.KindNotFound {
		t.Errorf("without a mount: %v", err)
	}
	f.mounts["/staging"], f.mounts["/other"] = fsMount(ourDevice, true), fsMount(otherDevice, false)
	if n := trimmable(); n != 0 {
		t.Errorf("%d with a read-only mount and another device's", n)
	}
	f.mounts["/target"] = fsMount(ourDevice, false)
	if n := trimmable(); n != 1 {
		t.Errorf("%d with a mount for writing", n)
	}
	n, next, err := s.Trim(t.Context(), testID, 7)
	if err != nil || n != 5 || next != lvm.GiB {
		t.Errorf("%d, %d, %v", n, next, err)
	}
	if _, _, err := s.Trim(t.Context(), testID, next); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	release, err := s.locks.lock(testID.String())
	must(t, err)
	defer release()
	if _, _, err := s.Trim(t.Context(), testID, 0); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("while it is being unstaged: %v", err)
	}
	f.expect(t, "trim /target 7 of 1 GiB")
}
