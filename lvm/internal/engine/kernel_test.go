package engine

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// targetKernel is a kernel with targets in some states.
type targetKernel struct {
	lvm.Kernel
	states map[string]lvm.TargetState
	err    error
	asked  int
}

func (k *targetKernel) TargetStates([]string, bool) (map[string]lvm.TargetState, error) {
	k.asked++
	return k.states, k.err
}

// TestMissingTargets: the kernel is asked every ten seconds. A target that could not be loaded is missing until the kernel has it, or for
// ten minutes; an unknown one is not.
func TestMissingTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &targetKernel{states: map[string]lvm.TargetState{lvm.TargetThinPool: lvm.TargetMissing, lvm.TargetRAID: lvm.TargetLoadable}}
		e := &Engine{Machine: lvm.Machine{Kernel: k}, Log: slog.New(slog.DiscardHandler)}
		expect := func(what string, want ...string) {
			t.Helper()
			if got := e.missingTargets(); !slices.Equal(got, want) {
				t.Errorf("%s: missing are %q, want %q", what, got, want)
			}
		}
		expect("at first", lvm.TargetThinPool)
		for range 10 {
			expect("at once", lvm.TargetThinPool)
		}
		if k.asked != 1 {
			t.Errorf("the kernel was asked %d times", k.asked)
		}
		e.NoteFailure(lvm.Class{Layout: lvm.LayoutRAID1})
		expect("after a failure", lvm.TargetThinPool, lvm.TargetRAID)
		time.Sleep(loadFailedAgain / 2)
		k.states = map[string]lvm.TargetState{lvm.TargetRAID: lvm.TargetLoadable}
		expect("an admin installed the other module", lvm.TargetRAID)
		time.Sleep(loadFailedAgain)
		expect("after ten minutes")
		e.NoteFailure(lvm.Class{Layout: lvm.LayoutRAID1})
		expect("after another failure", lvm.TargetRAID)
		k.states = nil
		time.Sleep(targetsGoodFor)
		expect("an admin loaded the module")
		e.NoteFailure(lvm.Class{Layout: lvm.LayoutRAID1})
		expect("after a failure for another reason")
		k.err = errors.New("no device-mapper")
		time.Sleep(targetsGoodFor)
		expect("the kernel does not say")
	})
}
