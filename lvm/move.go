package lvm

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

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
	StateReceiving: {StateReceived, StateDeleting, StateReceiving}, // to itself: the copy restarts, for another move
	StateReceived:  {StateReady, StateDeleting},
}

// CanMove reports whether a step of a move may change a volume's state so. Every other change is a defect, or another program's.
func CanMove(from, to VolumeState) bool { return slices.Contains(moves[from], to) }

// IsMove reports whether a volume in this state is one side of a move.
func (s VolumeState) IsMove() bool {
	return s == StateMoving || s == StateMoved || s == StateReceiving || s == StateReceived
}

// IsFullCopy reports whether a volume receives the whole content of its source, which is on another node, for a claim that is restored
// here. It becomes ready before the driver reports it, so no one has used it. Its source stays, so to remove it costs another copy alone. A
// volume that moves here has no source.
func (v Volume) IsFullCopy() bool {
	return (v.State == StateReceiving || v.State == StateReceived) && v.Source != ID{}
}

// Incoming is a request for a logical volume that receives the content of one on another node.
type Incoming struct {
	Spec       Spec   // Without Limit. Required is the source's size, or more for a full copy. That alone has a Source.
	Move       string // Volume.Move
	Since      string // the round of which the source can tell what changed; "": none
	FormatMark Bytes  // Volume.FormatMark of the source: the mark is on the same place
}

// movePattern matches Volume.Move.
var movePattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

// CheckMove returns an error (KindInvalid) for what cannot identify a move.
func CheckMove(move string) error {
	if !movePattern.MatchString(move) {
		return Errorf(KindInvalid, "%q does not identify a move: give 32 hexadecimal digits", move)
	}
	return nil
}

// MaxRecord is the maximum of Volume.Record in bytes: 3 tags.
const MaxRecord = 2048

// recordChunk is how much base64 one tag takes.
const recordChunk = 960

// MoveTags are the tags of a volume that a move changes; its state tag is one of them.
func MoveTags(v Volume) []string {
	tags := []string{StateTag(v.State)}
	if v.Move != "" {
		tags = append(tags, EncodeTag(keyMove, v.Move))
	}
	if v.Copied != 0 {
		tags = append(tags, EncodeTag(keyCopied, strconv.FormatInt(int64(v.Copied), 10)))
	}
	if v.Base != "" {
		tags = append(tags, EncodeTag(keyBase, v.Base))
	}
	rest := base64.StdEncoding.EncodeToString([]byte(v.Record))
	for i := 0; rest != ""; i++ {
		n := min(recordChunk, len(rest))
		tags = append(tags, EncodeTag(keyRecord+strconv.Itoa(i), rest[:n]))
		rest = rest[n:]
	}
	return tags
}

// IsMoveTag reports whether MoveTags can return such a tag.
func IsMoveTag(tag string) bool {
	key, _, _ := strings.Cut(strings.TrimPrefix(tag, TagPrefix), "=")
	return strings.HasPrefix(tag, TagPrefix) && (key == keyState || key == keyMove || key == keyCopied || key == keyBase || strings.HasPrefix(key, keyRecord))
}

// recordOf ignores invalid tags: then there is no record.
func recordOf(values map[string]string) string {
	var text strings.Builder
	for i := 0; text.Len() <= 2*MaxRecord; i++ {
		part, there := values[keyRecord+strconv.Itoa(i)]
		if !there {
			break
		}
		text.WriteString(part)
	}
	record, err := base64.StdEncoding.DecodeString(text.String())
	if err != nil || len(record) > MaxRecord {
		return ""
	}
	return string(record)
}

// CheckNoMove refuses a volume that is a side of a move (KindConflict). done completes the message "cannot be ...".
func (v Volume) CheckNoMove(done string) error {
	why := ""
	switch v.State {
	case StateMoving:
		why = "it is held for its move to another node: pods can use it when the move has ended, or is cancelled"
	case StateMoved:
		why = "its data moved to another node, and this is the former copy, which nothing uses any more"
	case StateReceiving, StateReceived:
		if v.IsFullCopy() {
			why = "it is a full copy of " + v.Source.String() + " on another node, and not complete"
			break
		}
		why = "it is a copy of a volume that is moving to this node, and not complete, or not handed over yet"
	default:
		return nil
	}
	return Errorf(KindConflict, "volume %s/%s cannot be %s: %s", v.Group, v.ID.LV, done, why)
}
