package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/node"
	"github.com/nodelvm/nodelvm/node/iolimit"
)

// limitsEvery is the interval at which the driver checks that the limits are set: another program may have disabled the io controller.
const limitsEvery = 30 * time.Second

// ioLimiter returns what limits the I/O of pods; nil without --io-limits.
func (o *options) ioLimiter() *iolimit.Limiter {
	if o.ioLimits == "" {
		return nil
	}
	return iolimit.New(iolimit.Config{Dir: o.ioLimits, OwnPod: os.Getenv("POD_UID")})
}

// limited returns the host with limits that are applied to pods; nil without --io-limits.
func (d *driver) limited(host *host.Host, mounts *node.Server) *limitedVolumes {
	if d.o.ioLimits == "" {
		return nil
	}
	return &limitedVolumes{host, mounts.CanLimit, mounts.ApplyLimits, mounts.ReadLimits, d.log}
}

// checkLimits applies the limits of all volumes where they are not set, at the start and then on a timer, until ctx ends.
func (d *driver) checkLimits(ctx context.Context, parts *errgroup.Group, check func(context.Context) error) {
	if d.o.ioLimits == "" {
		return
	}
	parts.Go(func() error {
		last := ""
		for ctx.Err() == nil {
			if err := check(ctx); err == nil {
				last = ""
			} else if text := err.Error(); text != last && ctx.Err() == nil {
				d.log.WarnContext(ctx, "cannot set I/O limits of volumes; the driver retries", "error", err)
				last = text
			}
			select {
			case <-ctx.Done():
			case <-time.After(limitsEvery):
			}
		}
		return nil
	})
}

// limitedVolumes records limits in the volume group, and then has them applied to the pods that use the volume.
type limitedVolumes struct {
	*host.Host
	can   func() error                        // node.Server.CanLimit
	apply func(context.Context, lvm.ID) error // node.Server.ApplyLimits
	read  func() func(lvm.Volume)             // node.Server.ReadLimits
	log   *slog.Logger
}

// CreateWithPeers remembers the limits of a new volume: its pod starts at once, and need not wait for a reading of its record.
func (l limitedVolumes) CreateWithPeers(ctx context.Context, spec lvm.Spec, peers []lvm.Spec) (lvm.Volume, error) {
	note := l.read()
	v, err := l.Host.CreateWithPeers(ctx, spec, peers)
	if err == nil {
		note(v)
	}
	return v, err
}

// SetLimits returns lvm.KindInvalid if this node cannot apply the limits: the change is infeasible here, until an admin changes the node.
func (l limitedVolumes) SetLimits(ctx context.Context, id lvm.ID, uuid string, limits lvm.Limits) (lvm.Volume, error) {
	if limits != (lvm.Limits{}) { // an infeasible change leaves no record
		if err := l.can(); err != nil {
			return lvm.Volume{}, infeasible(err)
		}
	}
	v, err := l.Host.SetLimits(ctx, id, uuid, limits)
	if err != nil {
		return lvm.Volume{}, err
	}
	return v, infeasible(l.apply(ctx, v.ID))
}

func infeasible(err error) error {
	if err != nil && lvm.KindOf(err) == lvm.KindConflict {
		return lvm.Errorf(lvm.KindInvalid, "%w", err)
	}
	return err
}

func (l limitedVolumes) Extend(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error) {
	return l.extended(ctx)(l.Host.Extend(ctx, id, required, limit))
}

func (l limitedVolumes) ExtendBlock(ctx context.Context, id lvm.ID, required, limit lvm.Bytes) (lvm.Volume, error) {
	return l.extended(ctx)(l.Host.ExtendBlock(ctx, id, required, limit))
}

// extended applies the limits that follow the size of an extended volume. If that fails, the driver's next check of all limits applies them.
func (l limitedVolumes) extended(ctx context.Context) func(lvm.Volume, error) (lvm.Volume, error) {
	return func(v lvm.Volume, err error) (lvm.Volume, error) {
		if err != nil || v.Limits.PerGiB == (lvm.Rates{}) {
			return v, err
		}
		if err := l.apply(ctx, v.ID); err != nil {
			l.log.WarnContext(ctx, "cannot apply the I/O limits of an extended volume; the driver retries", "volume", v.ID.String(), "error", err)
		}
		return v, nil
	}
}
