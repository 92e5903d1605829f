package filesystem

import (
	"context"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/utils/exec"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// Formatting describes a file system to create.
type Formatting struct {
	Device  string
	Size    lvm.Bytes // of the device
	Mark    Mark
	Type    string
	Options []string // further arguments of mkfs
	Clear   bool     // the device holds what an interrupted mkfs left
}

// Format creates a file system on a device that was never mounted, under its format mark, which it removes at the end. It is never interrupted.
// lvm.KindInUse: the device is open. Format keeps the device open for writing until it has finished: udev probes a device each time that a
// writer closes it.
func (m Tools) Format(ctx context.Context, f Formatting) (err error) {
	unused, err := openUnused(f.Device, os.O_RDONLY)
	if err != nil {
		return err
	}
	if err := unused.Close(); err != nil { // mkfs opens the device exclusively itself
		return err
	}
	device, err := os.OpenFile(f.Device, os.O_RDWR, 0)
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot open the device: %w", err)
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	if err := writeDurably(device, lvm.FormatMark(f.Mark.UUID), f.Mark.places(f.Size)...); err != nil {
		return err
	}
	if f.Clear { // else mkfs would refuse
		if err := writeDurably(device, make([]byte, headSize), 0); err != nil {
			return err
		}
	}
	args := mkfsArgs(f.Type, f.Device, f.Options, runningKernel())
	if words, err := m.run(m.Exec.Command("mkfs."+f.Type, args...)); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot create the file system: mkfs.%s %s: %w: %s", f.Type, strings.Join(args, " "), err, words)
	}
	if err := device.Sync(); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot flush the new file system to %s: %w", f.Device, err)
	}
	return removeMarks(device, f.Mark, f.Size)
}

// RemoveMark removes the format mark from a device, durably. Nothing on the device may be mounted. It opens the device for writing only if it
// has the mark: udev probes a device after each writer.
func (Tools) RemoveMark(path string, mark Mark) error {
	device, size, err := open(path)
	if err != nil {
		return err
	}
	found, err := findMarks(device, mark, size)
	if err = errors.Join(err, device.Close()); err != nil || len(found) == 0 {
		return err
	}
	writable, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot open the device: %w", err)
	}
	return errors.Join(removeMarks(writable, mark, size), writable.Close())
}

// WriteMark writes the format mark at its first place, durably, to a device that nothing uses.
func (Tools) WriteMark(path string, mark Mark) error {
	device, err := openUnused(path, os.O_RDWR)
	if err != nil {
		return err
	}
	err = writeDurably(device, lvm.FormatMark(mark.UUID), int64(mark.First))
	return errors.Join(err, device.Close())
}

// writeDurably writes data at these places, in any order, and then flushes the device.
func writeDurably(device *os.File, data []byte, places ...int64) error {
	for _, at := range places {
		if _, err := device.WriteAt(data, at); err != nil {
			return lvm.Errorf(lvm.KindInternal, "cannot write to device %s at byte %d: %w", device.Name(), at, err)
		}
	}
	if len(places) == 0 {
		return nil
	}
	if err := device.Sync(); err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot flush what was written to device %s: %w", device.Name(), err)
	}
	return nil
}

// openUnused opens a device that no mount and no other device uses. lvm.KindInUse: one does.
func openUnused(device string, flags int) (*os.File, error) {
	f, err := dm.OpenUnused(device, flags)
	switch {
	case errors.Is(err, unix.EBUSY):
		return nil, lvm.Errorf(lvm.KindInUse, "device %s is in use on this node (see lsblk %s); the driver wrote nothing to it", device, device)
	case err != nil:
		return nil, lvm.Errorf(lvm.KindInternal, "cannot open the device: %w", err)
	}
	return f, nil
}

// e2fsck(8), "EXIT CODE": a sum of these and others.
const fsckErrorsLeft = 4

// Fsck makes the repairs that need no admin. It checks ext4 with e2fsck -p, as at boot. xfs and btrfs replay their logs when they are mounted,
// and need no check. lvm.KindConflict: it cannot repair the errors.
func (m Tools) Fsck(_ context.Context, device, fsType string) error {
	if fsType != "ext4" {
		return nil
	}
	words, err := m.run(m.Exec.Command("fsck.ext4", "-p", device))
	var exit exec.ExitError
	switch {
	case err == nil:
	case !errors.As(err, &exit), !exit.Exited(): // it did not start, or was killed, perhaps because memory was short
		return lvm.Errorf(lvm.KindInternal, "the check of the file system on %s did not end, and the next NodeStageVolume repeats it: fsck.ext4: %w", device, err)
	case exit.ExitStatus()&fsckErrorsLeft != 0:
		return lvm.Errorf(lvm.KindConflict, "the file system on %s has errors that cannot be repaired automatically: run fsck.ext4 %s on this node. Its output: %s", device, device, words)
	}
	return nil // clean, corrected, or no fault of the file system: mount decides
}
