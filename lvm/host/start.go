package host

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// Start recovers what an interruption left, and resumes wiping. First it waits for a driver that still runs on this node (the
// error is ctx's), and in each group for that driver's last command. What it cannot recover it logs and retries in the
// background: a group may be blocked, or a device open for a while. Start fails only if it cannot read the disks at all.
func (h *Host) Start(ctx context.Context) error {
	if err := h.AcquireInstanceLock(ctx); err != nil {
		return err
	}
	if err := h.engine.Machine.Kernel.Load(ctx); err != nil {
		h.log.Warn("cannot load device-mapper; LVM tries to when it creates the first volume", "error", err)
	}
	h.engine.Check(ctx, h.tasks)
	s, err := h.engine.ReadDisks(ctx)
	if err != nil {
		return err
	}
	if len(s.UnreadDevices) > 0 {
		h.log.Warn("cannot read some disks; their volume groups may be missing", "disks", s.UnreadDevices)
	}
	if len(s.Skipped) > 0 {
		h.log.Warn("some block devices are not scanned for volume groups", "devices", s.Skipped)
	}
	if err := s.CheckTags(); err != nil {
		h.log.Warn("ignoring volumes with invalid tags", "error", err)
	}
	h.recovery.Start(ctx, s)
	return nil
}

// ResumeDevices resumes what a killed LVM command left suspended of a cluster's volumes. It is for a driver that cannot Start yet,
// because it has not read its cluster's UID. First it waits as Start does. What it cannot resume it retries in the background until
// ctx ends; Start resumes it too. The error is ctx's, or that of reading the disks.
func (h *Host) ResumeDevices(ctx context.Context, cluster string) error {
	if err := h.AcquireInstanceLock(ctx); err != nil {
		return err
	}
	canResume := cluster != "" && h.engine.Machine.Kernel.Ready() == nil // without device-mapper nothing is suspended
	if !canResume {
		return nil
	}
	s, err := h.engine.ReadDisks(ctx)
	if err != nil {
		return err
	}
	h.recovery.Resume(ctx, s, cluster)
	return nil
}

// SetCluster sets Config.Cluster. It must be called before Start.
func (h *Host) SetCluster(uid string) { h.engine.Config.Cluster = uid }

// AcquireInstanceLock waits until no other driver works on this node, and excludes others until Close. It is for a Host without
// Start, and a repetition does nothing. KindBusy: ctx has ended first.
func (h *Host) AcquireInstanceLock(ctx context.Context) error {
	if h.instance != nil {
		return nil
	}
	alone, err := lvmcmd.LockInstance(ctx, h.engine.Config.LockDir)
	if err == nil {
		h.instance = alone
	}
	return err
}
