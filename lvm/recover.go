package lvm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Start mends what an interruption left, and takes up the wiping. First it waits for a driver that still runs on this
// node to end (the error is ctx's). A volume that cannot be mended is logged and stays for the next start; only if the
// disks cannot be read at all does Start fail.
func (h *Host) Start(ctx context.Context) error {
	alone, err := lockInstance(ctx, h.cfg.LockDir)
	if err != nil {
		return err
	}
	h.alone = alone
	if err := h.machine.Kernel.Load(ctx); err != nil {
		h.log.Warn("LVM will try to load device-mapper itself when the first volume is made", "error", err)
	}
	s, err := h.read(ctx)
	if err != nil {
		return err
	}
	if len(s.Unread) > 0 {
		h.log.Warn("not every disk can be read; volume groups on them may be missing", "disks", s.Unread)
	}
	volumes, damaged := h.volumes(s)
	if damaged != nil {
		h.log.Warn("volumes are left alone", "error", damaged)
	}
	h.resume(ctx, s, volumes)
	for _, v := range volumes {
		switch v.State {
		case StateCreating:
			if err := h.removeIfStill(ctx, v); err != nil {
				h.log.Warn("a volume that was never finished is still there", "volume", v.ID.String(), "error", err)
			}
		case StateDeleting:
			h.wipe(v)
		case StateReady:
		}
	}
	return nil
}

// resume refreshes the devices of ours that are suspended: whoever touches one hangs. An LVM command that was killed
// between suspending and resuming leaves it so.
func (h *Host) resume(ctx context.Context, s State, volumes []Volume) {
	devices, err := h.machine.Kernel.Devices()
	if err != nil {
		h.log.Warn("whether a device is suspended cannot be told", "error", err)
		return
	}
	const plain = len("LVM-") + 64 // what follows is a suffix of a hidden layer
	suspended := map[string]bool{}
	for _, d := range devices {
		is, err := h.machine.Kernel.Suspended(d.Path)
		if err == nil && is && len(d.UUID) >= plain {
			suspended[d.UUID[:plain]] = true
		}
	}
	for _, v := range volumes {
		if !suspended[dmUUID(v.ID.VG, v.UUID)] {
			continue
		}
		if err := h.refresh(ctx, s, v); err != nil {
			h.log.Error("a suspended volume could not be resumed: what uses it hangs", "volume", v.ID.String(), "error", err)
		} else {
			h.log.Info("a suspended volume was resumed", "volume", v.ID.String())
		}
	}
}

func (h *Host) refresh(ctx context.Context, s State, v Volume) error {
	unlock, err := h.writers.lock(ctx, v.ID.VG)
	if err != nil {
		return err
	}
	defer unlock()
	g, _, _, err := s.find(v.ID)
	if err != nil {
		return err
	}
	t, err := targetOf(g.Name, v.ID.LV)
	if err != nil {
		return err
	}
	_, err = h.machine.Runner.Run(ctx, refreshArgs(t, g))
	return err
}

// removeIfStill removes a volume, half made or wiped, if what is there now is the very one, in the same state.
func (h *Host) removeIfStill(ctx context.Context, v Volume) error {
	unlock, err := h.writers.lock(ctx, v.ID.VG)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := h.read(ctx)
	if err != nil {
		return err
	}
	_, _, now, err := s.find(v.ID)
	if KindOf(err) == KindNotFound || err == nil && (now.UUID != v.UUID || now.State != v.State) {
		return nil
	}
	if err != nil {
		return err
	}
	return h.remove(ctx, s, now)
}

// instanceLock keeps two drivers from working on one node, as when an update starts the new one before the old one has
// ended: each would take the other's unfinished volumes for leftovers. The kernel releases it with the process.
type instanceLock struct{ file *os.File }

func lockInstance(ctx context.Context, dir string) (*instanceLock, error) {
	if dir == "" {
		return nil, nil
	}
	path := filepath.Join(dir, "nodelvm.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, Errorf(KindInternal, "the lock of this node's driver: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &instanceLock{f}, nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, Errorf(KindBusy, "another driver works on this node: it holds %s (%w)", path, fmt.Errorf("%w: %w", ctx.Err(), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// release may be called again.
func (l *instanceLock) release() {
	if l != nil {
		_ = l.file.Close()
	}
}
