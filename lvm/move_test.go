package lvm

import "testing"

// TestCanMove checks every pair of states.
func TestCanMove(t *testing.T) {
	states := []VolumeState{StateCreating, StateZeroing, StateReady, StateDeleting, StateMoving, StateMoved, StateReceiving, StateReceived}
	allowed := map[[2]VolumeState]string{
		{StateReady, StateMoving}:        "hold",
		{StateMoving, StateReady}:        "cancel",
		{StateMoving, StateMoved}:        "hand over",
		{StateMoved, StateDeleting}:      "remove",
		{StateReceiving, StateReceived}:  "the copy is complete",
		{StateReceiving, StateDeleting}:  "discard",
		{StateReceived, StateDeleting}:   "discard",
		{StateReceiving, StateReceiving}: "receive again",
		{StateReceived, StateReady}:      "finish",
	}
	for _, from := range states {
		for _, to := range states {
			if step, want := allowed[[2]VolumeState{from, to}]; CanMove(from, to) != want {
				t.Errorf("CanMove(%s, %s) = %v; want %v %s", from, to, !want, want, step)
			}
		}
		if want := from == StateMoving || from == StateMoved || from == StateReceiving || from == StateReceived; from.IsMove() != want {
			t.Errorf("%s.IsMove() = %v", from, !want)
		}
	}
	// Nothing leads from what another node's volume replaced, or from an incomplete copy, to ready; and nothing deletes the user's only volume.
	for _, never := range [][2]VolumeState{{StateMoved, StateReady}, {StateReceiving, StateReady}, {StateMoving, StateDeleting}} {
		if CanMove(never[0], never[1]) {
			t.Errorf("%s may become %s", never[0], never[1])
		}
	}
}
