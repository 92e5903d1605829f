package move

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/move"
)

// data is the Engine over the real data side.
type data struct {
	*move.Node
	prepare func(context.Context, lvm.ID) (end func(), err error)
}

// EngineOf returns the Engine of a node's data side. prepare is called before a snapshot of a volume that pods use, and end after it: see
// controller.Config.PrepareCopy.
func EngineOf(n *move.Node, prepare func(context.Context, lvm.ID) (end func(), err error)) Engine {
	return data{n, prepare}
}

// maxOffer bounds what a source's annotation can make the target decode.
const maxOffer = 16 << 10

func (d data) Volumes(ctx context.Context) ([]Local, error) {
	volumes, err := d.Moves(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]Local, 0, len(volumes))
	for _, v := range volumes {
		if v.IsFullCopy() { // kube/fullcopy's
			continue
		}
		all = append(all, Local{Volume: v, Move: v.Move, Record: v.Record})
	}
	return all, d.addRounds(ctx, all)
}

func (d data) Hold(ctx context.Context, id lvm.ID, uuid string) (Offer, error) {
	offer, err := d.Node.Hold(ctx, id, uuid)
	if err != nil {
		return Offer{}, err
	}
	return encodeOffer(offer)
}

func encodeOffer(offer move.Offer) (Offer, error) {
	text, err := json.Marshal(offer)
	if err != nil {
		return Offer{}, lvm.Errorf(lvm.KindInternal, "cannot write the offer of volume %s: %w", offer.Volume, err)
	}
	return Offer{Move: offer.Move, Round: offer.Round, Text: text}, nil
}

func (d data) Receive(ctx context.Context, offer Offer, of Offered, parameters map[string]string) (Progress, error) {
	o, class, err := parseOffer(offer, parameters)
	if err != nil {
		return Progress{}, err
	}
	if err := of.check(o); err != nil {
		return Progress{}, err
	}
	o.Claim, o.Block = of.Claim, of.Block // the source cannot give the volume to another tenant
	p, err := d.Node.Receive(ctx, o, class)
	return progressOf(o.Move, p), err
}

func progressOf(offer string, p move.Progress) Progress {
	_, queued := errors.AsType[*move.Queue](p.Problem)
	return Progress{Move: offer, Done: p.Done, Total: p.Total, Problem: p.Problem, Queued: queued}
}

func (d data) Finish(ctx context.Context, id lvm.ID, uuid string) error {
	_, err := d.Node.Finish(ctx, id, uuid)
	return err
}

// parseOffer decodes an offer, and what the storage class says of the volume group and the layout at the target.
func parseOffer(offer Offer, parameters map[string]string) (o move.Offer, class lvm.Class, err error) {
	if len(offer.Text) > maxOffer {
		return o, class, lvm.Errorf(lvm.KindInvalid, "the offer of the source has %d bytes, and at most %d are possible", len(offer.Text), maxOffer)
	}
	if err := json.Unmarshal(offer.Text, &o); err != nil {
		return o, class, lvm.Errorf(lvm.KindInvalid, "the offer of the source cannot be read: %w", err)
	}
	if o.Move != offer.Move || o.Round != offer.Round {
		return o, class, lvm.Errorf(lvm.KindInvalid, "the offer of the source is for move %q, and its text for %q", offer.Move, o.Move)
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		if p, known := lvm.FindParameter(name); known {
			if err := p.Parse(&class, parameters[name]); err != nil {
				return o, class, lvm.Errorf(lvm.KindInvalid, "the StorageClass' parameter %s is %q; %w", name, parameters[name], err)
			}
		}
	}
	class, err = lvm.CheckClass(class)
	return o, class, err
}

// maxExtent is the most that a logical volume is larger than its PersistentVolume's capacity: it has whole extents.
const maxExtent = lvm.GiB

// check refuses an offer of another volume. A source could else have the target create any volume, of any size.
func (of Offered) check(o move.Offer) error {
	if o.Name != of.Name || o.Volume != of.Handle || of.UUID != "" && o.UUID != of.UUID {
		return lvm.Errorf(lvm.KindInvalid, "the offer of the source is of volume %.100q, and the PersistentVolume has %s", o.Volume, of.Handle)
	}
	if o.Size > of.Size+maxExtent {
		return lvm.Errorf(lvm.KindInvalid, "the offer of the source is of %s, and the PersistentVolume has %s", o.Size, of.Size)
	}
	return nil
}
