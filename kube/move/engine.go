package move

import (
	"context"
	"encoding/json"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Engine is this node's volume groups and the copies between nodes. Its errors are lvm.Error. Each method can be repeated.
type Engine interface {
	// Volumes returns this cluster's volumes on this node that are ready or in a state of a move. It starts no process.
	Volumes(ctx context.Context) ([]Local, error)
	// Note replaces the record in a volume's tags; "": none. It has at most MaxRecord bytes.
	Note(ctx context.Context, id lvm.ID, uuid, record string) error
	Source
	Rounds
	Target
}

// Rounds copies volumes ahead: while pods still use them.
type Rounds interface {
	// TakeRound takes a snapshot of a ready volume with a record. KindInvalid: it is not thin; KindInsufficientCapacity: its pool has no room.
	TakeRound(ctx context.Context, id lvm.ID, uuid string, number int, before lvm.Bytes) error
	// OfferRound returns the offer of a round of a ready volume. An error means that the round is of no use, or harms others, unless it is
	// move.ErrComparing.
	OfferRound(ctx context.Context, of Local, round string) (Offer, error)
	// DropRounds removes the rounds of a volume but one; "": all.
	DropRounds(ctx context.Context, of Local, but string) error
	// DropUnneeded removes the rounds of volumes that have no record any more, or are handed over, or gone, and those whose pool has become too full.
	DropUnneeded(ctx context.Context) error
}

// Source gives volumes away.
type Source interface {
	// Hold tags a ready volume as moving, and lets the target of the offer copy it, or what changed since the newest round. A held one stays so: the
	// offer is the same but for address and key, and for that round, if it is of no use. KindInUse: its device is open.
	Hold(ctx context.Context, id lvm.ID, uuid string) (Offer, error)
	// Cancel tags a moving volume as ready. Nil for a ready one. KindConflict: it was handed over.
	Cancel(ctx context.Context, id lvm.ID, uuid string) error
	// HandOver tags a moving volume as moved. Nil if it is. KindConflict: it is held for another move by now.
	HandOver(ctx context.Context, id lvm.ID, uuid, move string) error
	// Remove deletes a moved volume. KindConflict: it is not moved.
	Remove(ctx context.Context, id lvm.ID, uuid string) error
}

// Target gets volumes.
type Target interface {
	// Receive creates the logical volume of an offer with the parameters of a storage class, or finds it, and begins or continues its copy in the
	// background. It returns at once. A volume that it received for another hold is copied from the beginning. KindInvalid: the offer is not of this volume.
	Receive(ctx context.Context, offer Offer, of Offered, parameters map[string]string) (Progress, error)
	// Finish tags a received volume as ready. KindConflict: it is not received.
	Finish(ctx context.Context, id lvm.ID, uuid string) error
	// Discard deletes a receiving or received volume. KindConflict: it is ready.
	Discard(ctx context.Context, id lvm.ID, uuid string) error
	// Key identifies the process that copies; the source compares it with the one in the answer.
	Key() string
}

// Local is a volume on this node.
type Local struct {
	lvm.Volume
	Move   string // identifies the hold, of a volume that is moving, moved, receiving or received
	Record string // as Note wrote it
	Rounds []Round
}

// Round is a snapshot of a volume that is being copied ahead.
type Round struct {
	Move    string // identifies it
	Number  int
	Before  lvm.Bytes // how much the round before it copied; 0: unknown
	Created time.Time
}

// Offer says how to copy a held volume, or a round. Only the engines read its text.
type Offer struct {
	Move  string          `json:"move"`
	Round bool            `json:"round,omitempty"` // of a round: this copy is not the last one
	Text  json.RawMessage `json:"text"`
}

// Offered is the volume that an offer has to be of, as the source's PersistentVolume has it.
type Offered struct {
	Name   string // of the PersistentVolume
	Handle string
	UUID   string    // of the logical volume; "": not known
	Claim  string    // namespace/name
	Block  bool      // raw
	Size   lvm.Bytes // the capacity; the logical volume has whole extents
}

// Progress is how far a copy is.
type Progress struct {
	Move        string // of the offer
	Done, Total lvm.Bytes
	Problem     error // why the last attempt ended; the next Receive tries again
	Queued      bool  // Problem is that other copies come first
}

// The states of a volume that moves. Exactly one of the two volumes is the user's: the source's until it is moved.
const (
	stateMoving    = lvm.VolumeState("moving")    // on the source: held for a move
	stateMoved     = lvm.VolumeState("moved")     // on the source: another node has the user's volume
	stateReceiving = lvm.VolumeState("receiving") // on the target: incomplete
	stateReceived  = lvm.VolumeState("received")  // on the target: complete and durable
)
