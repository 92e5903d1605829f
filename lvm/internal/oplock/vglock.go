package oplock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// LockHeld returns for how long a process, an admin's lvm or the driver's, has held LVM's lock on a group; 0 if none does. LVM
// creates the file when it acquires the lock and removes it when it releases the lock, so the file is as old as the lock. The
// check takes a shared lock for a moment, which makes no waiting lvm fail.
func LockHeld(dir string, group lvm.VGName) (time.Duration, error) {
	if dir == "" {
		return 0, nil
	}
	file, err := os.Open(filepath.Join(dir, "V_"+string(group)))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	switch err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return 0, nil // closing releases it
	case !errors.Is(err, unix.EWOULDBLOCK):
		return 0, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return 0, err
	}
	return max(time.Second, time.Since(time.Unix(stat.Ctim.Unix()))), nil
}

// LockPatience is how long the driver waits for an lvm command that changes a group, where nothing depends on it.
const LockPatience = 10 * time.Second

// LockVG acquires LVM's lock on a group as an lvm command that changes it does (lvm2, lib/misc/lvm-flock.c): no other lvm works
// on the group until unlock. KindBusy: ctx has ended first.
func LockVG(ctx context.Context, dir string, group lvm.VGName) (unlock func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	path := filepath.Join(dir, "V_"+string(group))
	for {
		f, err := lvmcmd.LockFile(ctx, path)
		if err != nil {
			return nil, lvm.Errorf(lvm.KindOf(err), "another lvm command holds the lock of volume group %s: %w", group, err)
		}
		locked, err := f.Stat()
		if now, gone := os.Stat(path); err == nil && gone == nil && os.SameFile(locked, now) {
			return func() { _ = errors.Join(os.Remove(path), f.Close()) }, nil
		}
		_ = f.Close() // the former holder removed the file
	}
}
