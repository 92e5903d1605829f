package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/luks"
)

// encryption adapts luks.Manager to lvm/host and node.
type encryption struct{ *luks.Manager }

// newEncryption recovers the mappings that an earlier run left suspended.
func newEncryption(ctx context.Context, log *slog.Logger) encryption {
	m := luks.New(luks.Config{Log: log})
	if err := m.Recover(ctx); err != nil {
		log.ErrorContext(ctx, "cannot recover the mappings of encrypted volumes; the driver retries at its next start", "error", err)
	}
	return encryption{m}
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
	return e.Manager.Erase(ctx, luks.Volume{Handle: v.ID.String(), UUID: v.UUID, Device: device, Thin: v.Class.Layout == lvm.LayoutThin})
}
