package move

import (
	"context"
	"errors"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// addRounds adds the rounds of volumes that are copied ahead. It reads nothing if none is.
func (d data) addRounds(ctx context.Context, all []Local) error {
	if !slices.ContainsFunc(all, mayHaveRounds) {
		return nil
	}
	rounds, err := d.Rounds(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(rounds, func(a, b lvm.Round) int { return a.Number - b.Number })
	for i := range all {
		for _, r := range rounds {
			if all[i].has(r) && r.State != lvm.StateCreating && mayHaveRounds(all[i]) {
				all[i].Rounds = append(all[i].Rounds, Round{Move: r.Move, Number: r.Number, Before: r.Before, Created: r.Created})
			}
		}
	}
	return nil
}

func mayHaveRounds(l Local) bool {
	return l.Record != "" && l.Class.Layout == lvm.LayoutThin && (l.State == lvm.StateReady || l.State == stateMoving)
}

func (l *Local) has(r lvm.Round) bool { return r.Source == l.ID && r.SourceUUID == l.UUID }

func (d data) TakeRound(ctx context.Context, id lvm.ID, uuid string, number int, before lvm.Bytes) error {
	end, err := d.prepare(ctx, id)
	if err != nil {
		return err
	}
	defer end()
	return d.Node.TakeRound(ctx, id, uuid, number, before)
}

func (d data) OfferRound(ctx context.Context, of Local, round string) (Offer, error) {
	rounds, err := d.Rounds(ctx)
	if err != nil {
		return Offer{}, err
	}
	for _, r := range rounds {
		if r.Move != round || !of.has(r) {
			continue
		}
		if err := d.FitsPool(ctx, r); err != nil {
			return Offer{}, err
		}
		offer, err := d.Node.OfferRound(ctx, of.Volume, r)
		if err != nil {
			return Offer{}, err
		}
		return encodeOffer(offer)
	}
	return Offer{}, lvm.Errorf(lvm.KindNotFound, "volume %s has no round %s", of.ID, round)
}

func (d data) DropRounds(ctx context.Context, of Local, but string) (failures error) {
	rounds, err := d.Rounds(ctx)
	if err != nil {
		return err
	}
	for _, r := range rounds {
		if of.has(r) && r.Move != but {
			failures = errors.Join(failures, d.DropRound(ctx, r))
		}
	}
	return failures
}

func (d data) DropUnneeded(ctx context.Context) error { return d.DropUnneededRounds(ctx) }
