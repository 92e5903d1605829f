package mount

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
)

// PathInfo describes what is at a path.
type PathInfo struct {
	Path   string       // with the links in its parents resolved, as the kernel lists mounts
	Mount  *Entry       // the topmost mount there; nil: not a mount point
	Kind   PathKind     // not checked for a mounted whole file system, which may be unresponsive
	Device DeviceNumber // of a PathDevice
}

// PathKind is the kind of file at a path.
type PathKind int

const (
	PathAbsent       PathKind = iota
	PathEmptyDir              // an empty directory
	PathNonEmptyDir           // a directory that is not empty
	PathEmptyFile             // an empty regular file, the mount point of a block volume
	PathNonEmptyFile          // a regular file with content
	PathDevice                // a block device
	PathOther                 // a symbolic link, a socket, ...
)

var pathKinds = map[PathKind]string{
	PathAbsent: "nothing", PathEmptyDir: "an empty directory", PathNonEmptyDir: "a directory that is not empty", PathEmptyFile: "an empty file",
	PathNonEmptyFile: "a file with content", PathDevice: "a block device", PathOther: "neither a directory nor a plain file",
}

func (k PathKind) String() string { return pathKinds[k] }

// Entry is one mount (proc_pid_mountinfo(5)).
type Entry struct {
	Device   DeviceNumber // of the file system; devtmpfs's for the bind mount of a block volume
	FSType   string
	Source   string
	ReadOnly bool   // the mount itself; the file system may differ
	Options  string // of the file system
}

// MountedDevice is the number of the device that is mounted or bound at the path.
func (p PathInfo) MountedDevice() DeviceNumber {
	if p.Kind == PathDevice {
		return p.Device
	}
	return p.Mount.Device
}

// Inspect describes a path. It does not access a file system that is mounted there, which may be unresponsive.
func (Machine) Inspect(path string) (PathInfo, error) {
	p := PathInfo{Path: path}
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("cannot inspect %s: %w", path, err)
	}
	p.Path = filepath.Join(parent, filepath.Base(path))
	mounts, err := mountsWhere(func(m dm.Mount) bool { return m.Point == p.Path })
	if err != nil {
		return p, err
	}
	if len(mounts) > 0 {
		top := mounts[len(mounts)-1]
		p.Mount = &Entry{
			Device:   numberOf(top),
			FSType:   top.Type,
			Source:   top.Source,
			ReadOnly: hasOption(top.Options, "ro"),
			Options:  top.SuperOptions,
		}
		if top.Root == "/" {
			return p, nil // a whole file system may be unresponsive; a bound file or device has another root
		}
	}
	p.Kind, p.Device, err = kindOf(p.Path)
	return p, err
}

func kindOf(path string) (PathKind, DeviceNumber, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); errors.Is(err, unix.ENOENT) {
		return PathAbsent, 0, nil
	} else if err != nil {
		return PathAbsent, 0, fmt.Errorf("cannot inspect %s: %w", path, err)
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		dir, err := os.Open(path)
		if err != nil {
			return PathEmptyDir, 0, err
		}
		defer func() { _ = dir.Close() }()
		if _, err = dir.Readdirnames(1); errors.Is(err, io.EOF) {
			return PathEmptyDir, 0, nil
		}
		return PathNonEmptyDir, 0, err
	case unix.S_IFREG:
		if stat.Size == 0 {
			return PathEmptyFile, 0, nil
		}
		return PathNonEmptyFile, 0, nil
	case unix.S_IFBLK:
		return PathDevice, DeviceNumber(stat.Rdev), nil
	}
	return PathOther, 0, nil
}
