package move

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// Offer is what the target must know of a volume that its source holds. It is plain data, for an annotation.
type Offer struct {
	Volume string `json:"volume"` // its handle on the source (lvm.ID)
	UUID   string `json:"uuid"`   // of the source's logical volume
	Move   string `json:"move"`   // identifies this hold: a volume that was released and held again has another one, so a copy of the former is worthless

	Name       string    `json:"name"`            // lvm.Spec.Name
	Claim      string    `json:"claim,omitempty"` // lvm.Spec.Claim
	Class      lvm.Class `json:"class"`           // Class.Group is the source's; the target may have another
	Size       lvm.Bytes `json:"size"`            // lvm.Volume.Size
	Block      bool      `json:"block,omitempty"`
	FormatMark lvm.Bytes `json:"formatMark,omitempty"` // lvm.Volume.FormatMark

	Limits lvm.Limits `json:"limits,omitzero"` // lvm.Volume.Limits

	Round bool   `json:"round,omitempty"` // Move is a round (lvm.Round): pods still use the volume, and this copy is not the last one
	Since string `json:"since,omitempty"` // the round since which the source knows what changed; "": none

	Address string `json:"address"` // host:port of the source's server; changes when its pod does
	Key     string `json:"key"`     // KeyID of its TLS key; changes when its process does
}

// Source is the part of a node that gives a volume away. Errors are lvm.Error; KindNotFound, KindNotLocal and KindNotManaged mean the volume
// as in host.Host.
type Source interface {
	// Hold tags a ready volume as moving. A volume that is moving already stays so: the offer is the same but for Address and Key. KindInUse: its device is open, bound at a pod's path, or a
	// snapshot of LVM depends on it (a thin snapshot does not).
	Hold(ctx context.Context, id lvm.ID, uuid string) (Offer, error)
	// Cancel tags a moving volume as ready, and ends pulls of it. Nil for a ready one. KindConflict: it was handed over.
	Cancel(ctx context.Context, id lvm.ID, uuid string) error
	// HandOver tags a moving volume as moved. Nil if it is. move is the Offer's: KindConflict if the volume is held for another
	// move by now. The caller knows that the target's volume is received.
	HandOver(ctx context.Context, id lvm.ID, uuid, move string) error
	// Remove deletes a moved volume, as host.Host.Delete does. Nil if the group lacks it. KindConflict: it is not moved.
	Remove(ctx context.Context, id lvm.ID, uuid string) error
	// TakeRound takes a snapshot of a ready volume whose move is noted: its next round. KindInvalid: the volume is not thin;
	// KindInsufficientCapacity: its pool has no room.
	TakeRound(ctx context.Context, id lvm.ID, uuid string, number int, before lvm.Bytes) error
	// OfferRound returns the offer of a round of a ready volume. An error means that the round is of no use, unless it is
	// ErrComparing.
	OfferRound(ctx context.Context, v lvm.Volume, r lvm.Round) (Offer, error)
	// DropRound ends pulls of a round's volume, and removes the round. Nil if the group lacks it.
	DropRound(ctx context.Context, r lvm.Round) error
	// DropUnneededRounds removes the rounds that no move needs any more, and those of ready volumes whose pool has become too full: the API server,
	// without which no caller of OfferRound comes to that, may not answer for hours.
	DropUnneededRounds(ctx context.Context) error
	// Rounds lists this node's rounds. FitsPool returns an error if a round's pool has become too full for it.
	Rounds(ctx context.Context) ([]lvm.Round, error)
	FitsPool(ctx context.Context, r lvm.Round) error
	// Moves lists this cluster's volumes on this node with a state of a move, the source's and the target's.
	Moves(ctx context.Context) ([]lvm.Volume, error)
}

// Target is the part of a node that gets a volume.
type Target interface {
	// Receive creates the logical volume of an offer with this class, or finds it, and begins or continues its copy in the background, if fewer than the
	// configured number of copies run. It returns at once with the progress so far. A volume that it received for another Offer.Move begins from zero,
	// unless it has the round Offer.Since completely, and nothing else: then what changed since is copied. A copy of a round ends as lvm.Volume.Base.
	// KindInsufficientCapacity: the class has no capacity here; KindExists: another volume has its name, such as the one that a move away
	// from here left (state moved).
	Receive(ctx context.Context, offer Offer, class lvm.Class) (Progress, error)
	// Finish tags a received volume as ready. Returns a ready one as it is. KindConflict: it is not received completely.
	Finish(ctx context.Context, id lvm.ID, uuid string) (lvm.Volume, error)
	// Discard ends the copy and deletes a receiving or received volume. Nil if the group lacks it. KindConflict: it is ready.
	Discard(ctx context.Context, id lvm.ID, uuid string) error
	// Key returns the KeyID of the TLS key with which this process pulls. The caller publishes it where the source can compare it: a token
	// that another source was sent is then of no use to it. Another process has another key.
	Key() string
}

// Progress is how far a copy is.
type Progress struct {
	Volume   lvm.Volume // on this node; its State says whether it is received
	Running  bool       // a copy is under way
	Done     lvm.Bytes  // Of Total, verified and flushed; never decreases while Running.
	Total    lvm.Bytes  // The volume, or what changed in it.
	PerSec   lvm.Bytes  // over the last seconds; 0 if not Running
	Problem  error      // why the last attempt ended, or a *Queue; nil if none did, or this one copies. The next Receive tries again.
	Attempts int        // since the process started
}

// Request is a pull that a source must authorize.
type Request struct {
	Token  string // bearer token of the peer, unverified
	Key    string // KeyID of the peer's TLS key; the peer has proved that it holds the key
	Volume lvm.ID // on this node
	UUID   string
	Claim  string // ClaimOf what pulls a snapshot for a full copy; "": the volume moves
}

// Authorizer decides whether a peer may pull a volume: the token is bound to a node, the volume's claim names this node as
// the target of its move, and that node published the key.
type Authorizer interface {
	// MayPull returns nil, or why not, as lvm.Error. Its text goes to the source's log only. The server calls it before it answers
	// anything about the volume, and again at least each minute while the pull runs.
	MayPull(ctx context.Context, r Request) error
}
