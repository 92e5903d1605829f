package move

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/nodelvm/nodelvm/lvm"
)

// A full copy gives a claim on one node the content of a snapshot on another one. Nothing is handed over: the snapshot does not change, and stays. So
// the source holds nothing, and keeps no record: Offer says where it serves a snapshot, and its Authorizer decides for each pull whether a claim on
// the peer's node may have it. The target creates a volume in the state "receiving", with the snapshot as its source, and Fetch copies as Receive does.

// maxClaim bounds ClaimOf: a namespace, a name and a UID.
const maxClaim = 63 + 253 + 36 + 2

// ClaimOf identifies a claim in a Request.
func ClaimOf(namespace, name, uid string) string { return namespace + "/" + name + "/" + uid }

// Offer says where and with which key this node serves a snapshot.
func (n *Node) Offer(sn lvm.Snapshot) Offer {
	return Offer{
		Volume: sn.ID.String(), UUID: sn.UUID, Class: lvm.Class{Layout: lvm.LayoutThin, Encryption: sn.Encryption}, Size: sn.Size,
		Address: n.cfg.Address, Key: n.key.id,
	}
}

// Fetch creates the volume of a spec for a claim (ClaimOf), or finds it, and begins or continues the copy of the snapshot in the background, as Receive
// does. spec.Source is what the claim names; the volume is as large as the spec says, at least as the snapshot. KindInvalid, KindOutOfRange: the
// snapshot does not fit the spec; the rest is as for Receive.
func (n *Node) Fetch(ctx context.Context, offer Offer, claim string, spec lvm.Spec) (Progress, error) {
	class, err := lvm.CheckClass(spec.Class)
	if err != nil {
		return Progress{}, err
	}
	spec.Class = class
	switch {
	case claim == "" || len(claim) > maxClaim:
		return Progress{}, lvm.Errorf(lvm.KindInvalid, "a full copy of %s is for no claim", offer.Volume)
	case spec.Source == lvm.ID{}:
		return Progress{}, lvm.Errorf(lvm.KindInvalid, "a full copy of %s has no source", offer.Volume)
	case offer.Size <= 0 || offer.FormatMark != 0 || offer.Round || offer.Since != "":
		return Progress{}, lvm.Errorf(lvm.KindInvalid, "the offer of %s is wrong", offer.Volume)
	case spec.Required < offer.Size:
		return Progress{}, lvm.Errorf(lvm.KindOutOfRange, "cannot create volume %q: the requested %s are less than the %s of its source %s", spec.Name, spec.Required, offer.Size, spec.Source)
	}
	// The same snapshot for the same claim continues; no other copy does.
	sum := sha256.Sum256([]byte(claim + "/" + offer.Volume + "/" + offer.UUID))
	offer.Move = hex.EncodeToString(sum[:16])
	spec.Limit = 0
	return n.receive(ctx, offer, claim, spec)
}
