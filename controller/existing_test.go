package controller

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestVolumeOfAnotherNodeIsNotFound: a call that uses a volume answers NotFound for one of another node and for one that is not managed.
func TestVolumeOfAnotherNodeIsNotFound(t *testing.T) {
	s := &Server{node: "node-1"}
	for kind, want := range map[lvm.Kind]lvm.Kind{
		lvm.KindNotLocal: lvm.KindNotFound, lvm.KindNotManaged: lvm.KindNotFound, lvm.KindBusy: lvm.KindBusy, lvm.KindConflict: lvm.KindConflict,
	} {
		if got := lvm.KindOf(existing(s.node, lvm.Errorf(kind, "x"))); got != want {
			t.Errorf("kind %v: answered as %v, want %v", kind, got, want)
		}
	}
}
