package main

import (
	"context"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/luks"
)

// encryption adapts luks.Manager to lvm/host and node.
type encryption struct{ *luks.Manager }

// mappings are the mappings that an earlier run left; *luks.Manager implements it.
type mappings interface {
	Recover(ctx context.Context) error
	Resume(ctx context.Context) error
}

// mappingPatience is how long the start waits for the mappings of encrypted volumes. What cannot be resumed then is retried after a
// pause that doubles from mappingPause up to lastMappingPause.
const (
	mappingPatience  = 10 * time.Second
	mappingPause     = time.Second
	lastMappingPause = time.Minute
)

// recoverMappings recovers the mappings that an earlier run left. It returns when each has been tried once, or that takes too long,
// and continues in the background.
func (d *driver) recoverMappings(ctx context.Context, parts *errgroup.Group) {
	tried := make(chan struct{})
	parts.Go(func() error {
		err := d.mappings.Recover(ctx)
		close(tried)
		for pause := mappingPause; err != nil && ctx.Err() == nil; pause = min(2*pause, lastMappingPause) {
			d.log.ErrorContext(ctx, "cannot check or resume all encrypted volumes; I/O to a suspended one waits, and the driver retries", "pause", pause, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
				err = d.mappings.Resume(ctx)
			}
		}
		return nil
	})
	select {
	case <-tried:
	case <-ctx.Done():
	case <-time.After(mappingPatience):
		d.log.WarnContext(ctx, "the check of the encrypted volumes' mappings takes long, and the start continues; if a mapping is suspended, I/O to its volume waits",
			"after", mappingPatience)
	}
}

// Erase keeps the device open: device-mapper gives the number of a removed device to the next one.
func (e encryption) Erase(ctx context.Context, v lvm.Volume, device string, check func() error) error {
	f, err := os.Open(device)
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot open the device of a deleted volume: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := check(); err != nil {
		return err
	}
	erased := luks.NewVolume(v.ID.String(), v.UUID, device)
	erased.Thin = v.Class.Layout == lvm.LayoutThin
	return e.Manager.Erase(ctx, erased)
}
