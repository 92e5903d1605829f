package api

import (
	"encoding/json"
	"slices"
	"time"
)

// MoveStatus is the text of a claim's annotation AnnotationMoveStatus: how far the move of its volume is.
type MoveStatus struct {
	Phase   string `json:"phase"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Message string `json:"message,omitempty"`
	Done    int64  `json:"done,omitempty"` // bytes
	Total   int64  `json:"total,omitempty"`
	Time    string `json:"time"` // of the last change (RFC 3339, UTC)
}

// Phases of a move.
const (
	MoveWaiting   = "Waiting"   // the move cannot begin yet
	MovePreparing = "Preparing" // the PersistentVolume is being parked
	MoveStopping  = "Stopping"  // a pod still uses the volume
	MoveCopying   = "Copying"
	MoveSwitching = "Switching" // the volume is the target's; the objects follow
	MoveMoved     = "Moved"
	MoveCancelled = "Cancelled"
)

// maxMoveStatus is the maximum size of a status in bytes. A tenant may write anything there.
const maxMoveStatus = 2048

// MoveStatusOf decodes the status among a claim's annotations; false: there is none, or it is not one.
func MoveStatusOf(annotations map[string]string) (s MoveStatus, ok bool) {
	text := annotations[AnnotationMoveStatus]
	return s, text != "" && len(text) < maxMoveStatus && json.Unmarshal([]byte(text), &s) == nil
}

// IsUnderWay reports whether a move has begun and has not ended.
func (s MoveStatus) IsUnderWay() bool {
	return slices.Contains([]string{MovePreparing, MoveStopping, MoveCopying, MoveSwitching}, s.Phase)
}

// When returns the time of the last change; zero: the status names none.
func (s MoveStatus) When() time.Time {
	t, err := time.Parse(time.RFC3339Nano, s.Time)
	if err != nil {
		return time.Time{}
	}
	return t
}
