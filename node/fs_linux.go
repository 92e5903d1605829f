package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"

	"github.com/nodelvm/nodelvm/lvm"
)

// machine is the real Filesystem.
type machine struct {
	mounter mount.Interface
	exec    exec.Interface
}

func newMachine() machine {
	return machine{mounter: mount.NewWithoutSystemd(""), exec: exec.New()}
}

func (machine) Look(path string) (Place, error) {
	p := Place{Path: path}
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("what is at %s cannot be seen: %w", path, err)
	}
	p.Path = filepath.Join(parent, filepath.Base(path))
	mounts, err := mountsWhere(func(m *mountinfo.Info) bool { return m.Mountpoint == p.Path })
	if err != nil {
		return p, err
	}
	if len(mounts) > 0 {
		top := mounts[len(mounts)-1]
		p.Mount = &Mount{
			Device:   numberOf(top),
			FSType:   top.FSType,
			Source:   top.Source,
			ReadOnly: hasOption(top.Options, "ro"),
		}
		if top.Root == "/" {
			return p, nil // a whole file system; a bound file or device has another root, and is safe to look at
		}
	}
	p.Kind, p.Device, err = kindOf(p.Path)
	return p, err
}

func mountsWhere(wanted func(*mountinfo.Info) bool) ([]*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return !wanted(m), false })
	if err != nil {
		return nil, fmt.Errorf("the mounts of this node cannot be read: %w", err)
	}
	return mounts, nil
}

// numberOf is the number of the device below a mount. A btrfs has a number of its own there, and names its device.
func numberOf(m *mountinfo.Info) DeviceNumber {
	var stat unix.Stat_t
	if m.FSType == "btrfs" && unix.Stat(m.Source, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFBLK {
		return DeviceNumber(stat.Rdev)
	}
	return DeviceNumber(unix.Mkdev(uint32(m.Major), uint32(m.Minor))) //nolint:gosec // the kernel's own numbers
}

func (m machine) Mounts(device string) ([]string, error) {
	block, err := m.Stat(device)
	if err != nil {
		return nil, err
	}
	mounts, err := mountsWhere(func(m *mountinfo.Info) bool {
		if m.Root == "/" { // other roots are parts of it, as the kubelet binds for subPath
			return numberOf(m) == block.Number
		}
		if m.FSType != "devtmpfs" && m.FSType != "tmpfs" { // where device nodes are bound from
			return false
		}
		kind, number, err := kindOf(m.Mountpoint)
		return err == nil && kind == PlaceDevice && number == block.Number
	})
	paths := make([]string, 0, len(mounts))
	for _, m := range mounts {
		paths = append(paths, m.Mountpoint)
	}
	return paths, err
}

func hasOption(options, option string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == option {
			return true
		}
	}
	return false
}

func kindOf(path string) (PlaceKind, DeviceNumber, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); errors.Is(err, unix.ENOENT) {
		return PlaceAbsent, 0, nil
	} else if err != nil {
		return PlaceAbsent, 0, fmt.Errorf("what is at %s cannot be seen: %w", path, err)
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		dir, err := os.Open(path)
		if err != nil {
			return PlaceDir, 0, err
		}
		defer func() { _ = dir.Close() }()
		if _, err = dir.Readdirnames(1); errors.Is(err, io.EOF) {
			return PlaceDir, 0, nil
		}
		return PlaceFullDir, 0, err
	case unix.S_IFREG:
		if stat.Size == 0 {
			return PlaceFile, 0, nil
		}
		return PlaceFullFile, 0, nil
	case unix.S_IFBLK:
		return PlaceDevice, DeviceNumber(stat.Rdev), nil
	}
	return PlaceOther, 0, nil
}

func (machine) Stat(device string) (BlockDevice, error) {
	var stat unix.Stat_t
	if err := unix.Stat(device, &stat); err != nil {
		return BlockDevice{}, fmt.Errorf("device %s cannot be seen: %w", device, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return BlockDevice{}, fmt.Errorf("%s is not a block device", device)
	}
	path := fmt.Sprintf("/sys/dev/block/%d:%d/size", unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	text, err := os.ReadFile(path)
	if err != nil {
		return BlockDevice{}, fmt.Errorf("the size of %s cannot be read: %w", device, err)
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return BlockDevice{}, fmt.Errorf("%s: %w", path, err)
	}
	return BlockDevice{Number: DeviceNumber(stat.Rdev), Size: lvm.Bytes(sectors) * 512}, nil // sysfs counts 512-byte sectors, whatever the disk's are
}

func (m machine) Format(ctx context.Context, device, fsType string, options []string) error {
	if err := waitUnused(ctx, device); err != nil {
		return err
	}
	args := mkfsArgs(fsType, device, options)
	if out, err := m.command(m.exec.Command("mkfs."+fsType, args...)); err != nil {
		return lvm.Errorf(lvm.KindInternal, "the file system could not be made: mkfs.%s %s: %w: %s", fsType, strings.Join(args, " "), err, oneLine(out))
	}
	return nil
}

// A device that nobody uses may be open for a moment all the same: udev looks into it after each writer.
const (
	unusedPatience = 2 * time.Second
	unusedPause    = 50 * time.Millisecond
)

// waitUnused waits until no mount and no other device holds the device: O_EXCL (open(2), "block device").
func waitUnused(ctx context.Context, device string) error {
	ctx, cancel := context.WithTimeout(ctx, unusedPatience)
	defer cancel()
	for {
		f, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, unix.EBUSY) {
			return lvm.Errorf(lvm.KindInternal, "the device cannot be opened: %w", err)
		}
		select {
		case <-ctx.Done():
			return lvm.Errorf(lvm.KindInUse, "device %s is in use by something else on this node (lsblk %s may tell); nothing was written to it", device, device)
		case <-time.After(unusedPause):
		}
	}
}

// e2fsck(8), "EXIT CODE": a sum of these and others.
const fsckErrorsLeft = 4

// Check: ext4 by e2fsck in its careful mode, as at boot; xfs and btrfs replay their logs when they are mounted, and want
// no check.
func (m machine) Check(_ context.Context, device, fsType string) error {
	if fsType != "ext4" {
		return nil
	}
	out, err := m.command(m.exec.Command("fsck.ext4", "-p", device))
	var exit exec.ExitError
	switch {
	case !errors.As(err, &exit):
	case !exit.Exited(): // killed, perhaps for want of memory
		return lvm.Errorf(lvm.KindInternal, "the check of the file system on %s was cut off, and is done anew: fsck.ext4: %w", device, err)
	case exit.ExitStatus()&fsckErrorsLeft != 0:
		return lvm.Errorf(lvm.KindForeign, "the file system on %s has errors that need a person: run fsck.ext4 %s on this node. It says: %s", device, device, oneLine(out))
	}
	return nil // all else is for mount to judge: corrected, clean, or not a matter of the file system
}

// command runs a tool in the C locale, and returns what it wrote to either stream.
func (machine) command(cmd exec.Cmd) ([]byte, error) {
	cmd.SetEnv(append(os.Environ(), "LC_ALL=C"))
	return cmd.CombinedOutput()
}

func oneLine(out []byte) string { return strings.Join(strings.Fields(string(out)), " ") }
