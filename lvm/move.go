package lvm

import "slices"

// The states of a volume that moves to another node (package move). Exactly one of the two logical volumes is the user's volume at each
// moment: the source's until it is moved, then the target's.
const (
	StateMoving    VolumeState = "moving"    // on the source: the user's volume, held for a move. No pod can start with it, and it is not changed
	StateMoved     VolumeState = "moved"     // on the source: the user's volume is on another node. Kept until it is removed by an explicit call
	StateReceiving VolumeState = "receiving" // on the target: its content is incomplete
	StateReceived  VolumeState = "received"  // on the target: its content is complete and durable, but the source's is still the user's volume
)

// moves are the state changes of a move.
var moves = map[VolumeState][]VolumeState{
	StateReady:     {StateMoving},
	StateMoving:    {StateReady, StateMoved},
	StateMoved:     {StateDeleting},
	StateReceiving: {StateReceived, StateDeleting},
	StateReceived:  {StateReady, StateDeleting},
}

// CanMove reports whether a step of a move may change a volume's state so. Every other change is a defect, or another program's.
func CanMove(from, to VolumeState) bool { return slices.Contains(moves[from], to) }

// IsMove reports whether a volume in this state is one side of a move.
func (s VolumeState) IsMove() bool {
	return s == StateMoving || s == StateMoved || s == StateReceiving || s == StateReceived
}
