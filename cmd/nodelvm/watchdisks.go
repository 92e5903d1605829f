package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/disks"
)

// diskRecordPeriod is the interval at which the driver records the disks of its physical volumes.
const diskRecordPeriod = time.Minute

// diskRecord keeps the record of the node's disks up to date.
type diskRecord struct {
	host  nodeHost
	disks *disks.Registry
	log   *slog.Logger
}

func newDiskRecord(host nodeHost, stateDir string, log *slog.Logger) *diskRecord {
	registry, err := disks.New(filepath.Join(stateDir, "disks.json"))
	if err != nil {
		log.Warn("the disks of an earlier run are unknown", "error", err)
	}
	return &diskRecord{host, registry, log}
}

// start records the disks now and then periodically, until ctx ends.
func (d *diskRecord) start(ctx context.Context, parts *errgroup.Group) {
	parts.Go(func() error {
		failing := d.record(ctx, "")
		repeat(ctx, diskRecordPeriod, func(ctx context.Context) { failing = d.record(ctx, failing) })
		return nil
	})
}

// record logs a repeated error only once: failing is the last one.
func (d *diskRecord) record(ctx context.Context, failing string) string {
	inv, err := d.host.Inventory(ctx)
	if err != nil || ctx.Err() != nil {
		return failing // readiness and the status page report it
	}
	d.disks.Observe(inv)
	if err = d.disks.Save(); err == nil {
		return ""
	}
	if err.Error() != failing {
		d.log.WarnContext(ctx, "a disk that is lost later may have no description", "error", err)
	}
	return err.Error()
}

// describing adds to the messages of conditions the disks that they name.
func (d *diskRecord) describing(health findings) findings {
	return func(ctx context.Context) ([]lvm.Condition, error) {
		found, err := health(ctx)
		for i := range found {
			found[i].Text = d.disks.Describe(found[i].Text)
		}
		return found, err
	}
}
