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

// SyncBeforeGroupSnapshot is SyncBeforeCopy for each type of file system: what is written before is not written while the volumes of a
// group snapshot are suspended.
func (s *Server) SyncBeforeGroupSnapshot(ctx context.Context, id lvm.ID) error {
	return s.syncBefore(ctx, id, func(string) bool { return true })
}

// SyncBeforeCopy writes the dirty data of a volume's mounted file system to the disks, if LVM's snapshot would miss it. It does
// nothing for a volume that is not mounted for writing here. The volume is locked meanwhile, even after ctx has ended: a disk
// that does not respond costs one goroutine, and later calls get lvm.KindBusy.
func (s *Server) SyncBeforeCopy(ctx context.Context, id lvm.ID) error {
	return s.syncBefore(ctx, id, func(fsType string) bool { return fsType == syncedBeforeCopy })
}

func (s *Server) syncBefore(ctx context.Context, id lvm.ID, wanted func(fsType string) bool) error {
	_, mounts, err := s.writableMounts(ctx, id)
	if lvm.KindOf(err) == lvm.KindNotFound {
		return nil // not in use here, or it does not exist, which LVM then reports
	}
	if err != nil {
		return err
	}
	if len(mounts) == 0 || !wanted(mounts[0].Type) {
		return nil
	}
	return s.syncVolume(ctx, id, mounts)
}

// syncVolume syncs a mounted file system while the volume is locked; see SyncBeforeCopy.
func (s *Server) syncVolume(ctx context.Context, id lvm.ID, mounts []mount.FileSystem) error {
	release, err := s.locks.lock(id.String())
	if err != nil {
		return err
	}
	synced := make(chan error, 1)
	go func() {
		err := s.syncFirst(mounts)
		release() // before the answer: the caller's next request must find the volume unlocked
		synced <- err
	}()
	select {
	case err := <-synced:
		if err != nil {
			return lvm.Errorf(lvm.KindBusy, "cannot snapshot or clone volume %s yet: the driver cannot write the cached data of its file system to the disk: %w", id, err)
		}
		return nil
	case <-ctx.Done():
		return lvm.Errorf(lvm.KindBusy, "cannot snapshot or clone volume %s yet: its file system is writing cached data to the disk; the caller retries", id)
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
