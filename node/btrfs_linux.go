package node

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// SetUUID writes one block, the first superblock: a mount reads only this one, and the next commit writes all the others.
func (m machine) SetUUID(ctx context.Context, device string, uuid [uuidSize]byte) error {
	super, err := readSuperblock(device, superblocks["btrfs"])
	if err != nil {
		return err
	}
	changed, err := withUUID(super, uuid)
	if err != nil || changed == nil {
		return err
	}
	if err := waitUnused(ctx, device); err != nil {
		return err
	}
	f, err := os.OpenFile(device, os.O_WRONLY|unix.O_EXCL|unix.O_SYNC, 0)
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot give the clone a new file system UUID: %w", err)
	}
	_, err = f.WriteAt(changed, superblocks["btrfs"])
	if err := errors.Join(err, f.Close()); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot give the clone a new file system UUID: %w", err)
	}
	return nil
}
