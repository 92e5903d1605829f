package node

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

// syncedBeforeCopy is the type of file system that does not freeze when device-mapper suspends its device, so that a snapshot
// lacks its dirty data. The kernel's freeze_bdev finds no superblock there, because a btrfs can have several devices. Linux 7.2
// freezes it, 6.12 does not. ext4 and xfs freeze on each kernel.
const syncedBeforeCopy = "btrfs"

// SyncBeforeGroupSnapshot is SyncBeforeCopy for each type of file system, and for a raw device: what is written before is not written while the
// volumes of a group snapshot are suspended.
func (s *Server) SyncBeforeGroupSnapshot(ctx context.Context, id lvm.ID) error {
	v, path, block, err := s.deviceOf(ctx, id)
	if lvm.KindOf(err) == lvm.KindNotFound {
		return nil // as in SyncBeforeCopy
	}
	if err != nil {
		return err
	}
	mounted, err := s.mounted.FileSystems()
	switch mounts := mounted[block.Number]; {
	case err != nil:
		return err
	case len(writable(mounts)) > 0:
		return s.syncMounted(ctx, id, writable(mounts))
	case len(mounts) > 0 || v.Access.ReadOnly():
		return nil // no pod writes to it
	}
	return s.syncVolume(ctx, id, func() error { return s.block.SyncDevice(path) })
}

// SyncBeforeCopy writes the dirty data of a volume's mounted file system to the disks, if LVM's snapshot would miss it. It does
// nothing for a volume that is not mounted for writing here. The volume is locked meanwhile, even after ctx has ended: a disk
// that does not respond costs one goroutine, and later calls get lvm.KindBusy.
func (s *Server) SyncBeforeCopy(ctx context.Context, id lvm.ID) error {
	_, mounts, err := s.writableMounts(ctx, id)
	if lvm.KindOf(err) == lvm.KindNotFound {
		return nil // not in use here, or it does not exist, which LVM then reports
	}
	if err != nil {
		return err
	}
	if len(mounts) == 0 || mounts[0].Type != syncedBeforeCopy {
		return nil
	}
	return s.syncMounted(ctx, id, mounts)
}

// syncMounted syncs a mounted file system while the volume is locked; see SyncBeforeCopy.
func (s *Server) syncMounted(ctx context.Context, id lvm.ID, mounts []mount.FileSystem) error {
	return s.syncVolume(ctx, id, func() error { return s.syncFirst(mounts) })
}

// syncVolume runs sync while the volume is locked; see SyncBeforeCopy.
func (s *Server) syncVolume(ctx context.Context, id lvm.ID, sync func() error) error {
	release, err := s.locks.lock(id.String())
	if err != nil {
		return err
	}
	synced := make(chan error, 1)
	go func() {
		err := sync()
		release() // before the answer: the caller's next request must find the volume unlocked
		synced <- err
	}()
	select {
	case err := <-synced:
		if err != nil {
			return lvm.Errorf(lvm.KindBusy, "cannot snapshot or clone volume %s yet: the driver cannot write its cached data to the disk: %w", id, err)
		}
		return nil
	case <-ctx.Done():
		return lvm.Errorf(lvm.KindBusy, "cannot snapshot or clone volume %s yet: its cached data is being written to the disk; the caller retries", id)
	}
}

// syncFirst syncs a file system at the first of its mount points that still shows it: another mount can cover one.
func (s *Server) syncFirst(mounts []mount.FileSystem) (err error) {
	for _, m := range mounts {
		if err = s.mounted.Sync(m); err == nil {
			return nil
		}
	}
	return err
}
