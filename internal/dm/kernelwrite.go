package dm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// Sync opens the disks read-only: after a writable descriptor closes, udev probes the disk.
func (k Kernel) Sync(paths []string) error {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// OpenUnused opens a device exclusively: no mount and no other device uses it (open(2), O_EXCL). EBUSY: one does. It waits for two seconds, because
// a program may have the device open so for a moment. A new process is such a program until it has executed its own program: it has all files that
// this process had open, also those that this process has closed meanwhile.
func OpenUnused(path string, flags int) (*os.File, error) {
	deadline := time.Now().Add(unusedPatience)
	for {
		f, err := os.OpenFile(path, flags|unix.O_EXCL, 0)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return f, err
		}
		time.Sleep(unusedPause)
	}
}

// zeroChunk is how much Zero writes before other I/O gets the disk.
const zeroChunk = 64 * lvm.MiB

// Zero uses about half of the disk's time: after each chunk it rests as long as the chunk took. The kernel delegates BLKZEROOUT
// to a disk that supports it, and writes zeroes to any other.
func (k Kernel) Zero(ctx context.Context, d lvm.Device, from, to lvm.Bytes, done func(until lvm.Bytes)) error {
	path := d.Path
	f, err := OpenUnused(path, os.O_RDWR)
	if err != nil {
		return fmt.Errorf("cannot wipe: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := k.stillIs(f, d); err != nil {
		return fmt.Errorf("cannot wipe: %w", err)
	}
	// A raw device that pods only read is read-only; the process that was to undo that may have been killed.
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, 0); err != nil {
		return fmt.Errorf("cannot wipe %s, which is read-only: %w", path, err)
	}
	for at := from; at < to; {
		began := time.Now()
		until := min(at+zeroChunk, to)
		span := [2]uint64{uint64(at), uint64(until - at)}
		if err := ioctl(f.Fd(), blkZeroOut, unsafe.Pointer(&span)); err != nil {
			return fmt.Errorf("cannot wipe %s at byte %d of %d: %w", path, at, to, err)
		}
		if err := f.Sync(); err != nil {
			return fmt.Errorf("cannot wipe %s at byte %d of %d: %w", path, at, to, err)
		}
		at = until
		if done != nil {
			done(at)
		}
		if at == to {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the wipe of %s stopped at byte %d of %d: %w", path, at, to, ctx.Err())
		case <-time.After(time.Since(began)):
		}
	}
	return nil
}

// Write writes durably to a device that nothing uses.
func (k Kernel) Write(d lvm.Device, data []byte, at lvm.Bytes) (err error) {
	f, err := OpenUnused(d.Path, os.O_RDWR)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := k.stillIs(f, d); err != nil {
		return err
	}
	if _, err := f.WriteAt(data, int64(at)); err != nil {
		return fmt.Errorf("cannot write to %s at byte %d: %w", d.Path, int64(at), err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("cannot flush %s: %w", d.Path, err)
	}
	return nil
}

// stillIs checks that an open file is the device that the caller found. Device-mapper gives the number of a removed device to
// the next one, which may be any tenant's. While the file is open, that cannot happen.
func (k Kernel) stillIs(f *os.File, d lvm.Device) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return err
	}
	uuid, err := os.ReadFile(filepath.Join(k.Sys, "dev/block", FormatNumber(stat.Rdev), "dm/uuid"))
	if is := strings.TrimSpace(string(uuid)); err != nil || is != d.UUID {
		return fmt.Errorf("%s is no longer the device %s (now: %q), and nothing was written to it: %w", d.Path, d.UUID, is, cmp.Or(err, errReassigned))
	}
	return nil
}

var errReassigned = errors.New("another process has deactivated the volume")

// blkZeroOut is BLKZEROOUT of include/uapi/linux/fs.h.
const blkZeroOut = 0x127f

// FrozenPatience is the time in which a file system must refuse a name that is too long.
const FrozenPatience = 2 * time.Second

// probes are the unanswered requests to file systems, by mount point: at most one each.
var probes sync.Map

// IsFrozen asks to remove a file whose name is longer than any file system allows. That changes nothing and fails at once, but
// the kernel first waits until the file system accepts writes (sb_start_write in do_unlinkat of fs/namei.c). A frozen file
// system has no other sign. To freeze it and see that fail would stop its users, and leave them stopped if the driver were
// killed then. IsFrozen does not ask about mounts that this process cannot see.
func (k Kernel) IsFrozen(path string) (bool, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return false, err
	}
	points, err := mountPoints(stat.Rdev)
	if err != nil || len(points) == 0 {
		return false, err
	}
	mount := points[0]
	if _, under := probes.LoadOrStore(mount, true); under {
		return true, nil
	}
	answered := make(chan struct{})
	go func() {
		_ = unix.Unlinkat(unix.AT_FDCWD, mount+"/"+strings.Repeat("x", unix.NAME_MAX+1), 0) // fails in any case
		probes.Delete(mount)
		close(answered)
	}()
	select {
	case <-answered:
		return false, nil
	case <-time.After(FrozenPatience):
		return true, nil
	}
}
