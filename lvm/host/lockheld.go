package host

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

// lockHeld tells for how long somebody, an admin's lvm or ours, has been holding LVM's lock on a group; 0 if nobody does.
// LVM makes the file when it takes the lock and removes it when it gives it back, so the file is as old as the lock. We
// try to share the lock for a moment: nobody who waits for it is turned away by that.
func lockHeld(dir, group string) (time.Duration, error) {
	if dir == "" {
		return 0, nil
	}
	file, err := os.Open(filepath.Join(dir, "V_"+group))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	switch err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return 0, nil // closing gives it back
	case !errors.Is(err, unix.EWOULDBLOCK):
		return 0, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return 0, err
	}
	return max(time.Second, time.Since(time.Unix(stat.Ctim.Unix()))), nil
}

// lockPatience is how long an lvm command that changes a group is waited for, where nothing depends on it.
const lockPatience = 10 * time.Second

// lockVG takes LVM's lock on a group as an lvm does that changes it (lvm2, lib/misc/lvm-flock.c): no other one works on the
// group until unlock. KindBusy: ctx has ended first.
func lockVG(ctx context.Context, dir, group string) (unlock func(), err error) {
	if dir == "" {
		return func() {}, nil
	}
	path := filepath.Join(dir, "V_"+group)
	for {
		f, err := lvmcmd.LockFile(ctx, path)
		if err != nil {
			return nil, lvm.Errorf(lvm.KindOf(err), "an lvm command works on volume group %s: %w", group, err)
		}
		locked, err := f.Stat()
		if now, gone := os.Stat(path); err == nil && gone == nil && os.SameFile(locked, now) {
			return func() { _ = errors.Join(os.Remove(path), f.Close()) }, nil
		}
		_ = f.Close() // who had it before has removed the file
	}
}
