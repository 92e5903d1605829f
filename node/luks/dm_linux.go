package luks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// control is the kernel's device-mapper.
const control = dm.Control("/dev/mapper/control")

// inKernel reports whether device-mapper is loaded; without it there is no mapping. If that is unknown, it returns true.
func inKernel() bool {
	_, err := os.Stat("/sys/class/misc/device-mapper")
	return !errors.Is(err, os.ErrNotExist)
}

// mapping reads the state of a mapping. It does not wait for I/O.
func (linux) mapping(name string) (m Mapping, err error) {
	info, err := control.Table(dm.Key{Name: name})
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) && !inKernel() {
		return m, nil
	}
	if err != nil {
		return m, lvm.Errorf(lvm.KindInternal, "cannot ask device-mapper for %s: %w", name, err)
	}
	m = Mapping{Exists: true, Live: info.Targets > 0, Number: info.Number, UUID: info.UUID, Suspended: info.Suspended, Size: lvm.Bytes(info.Target.Sectors) * 512}
	switch info.Targets {
	case 0:
	case 1:
		m.Table, err = parseTable(info.Target.Type, info.Target.Params)
	default:
		m.Table.Target = fmt.Sprintf("%d targets", info.Targets)
	}
	return m, err
}

// suspend freezes a mounted file system by itself (Linux, Documentation/admin-guide/device-mapper).
func (linux) suspend(name string, stop bool) error { return control.Suspend(dm.Key{Name: name}, stop) }

// mappings lists the names of this driver's mappings.
func (linux) mappings() (names []string, err error) {
	files, err := filepath.Glob("/sys/block/dm-*/dm/name")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if name := strings.TrimSpace(string(content)); strings.HasPrefix(name, namePrefix) {
			names = append(names, name)
		}
	}
	return names, err
}

// An unused device may be open for a moment: udev probes it after each writer.
const (
	unusedPatience = 2 * time.Second
	unusedPause    = 50 * time.Millisecond
)

// ensureName creates the name that a killed cryptsetup did not: mount(8) looks up the name of /dev/dm-N, and fails without it.
func (linux) ensureName(name string, m Mapping) error {
	path := filepath.Join("/dev/mapper", name)
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	if err == nil && stat.Rdev == m.Number && stat.Mode&unix.S_IFMT == unix.S_IFBLK {
		return nil
	}
	if err = os.Remove(path); err == nil || errors.Is(err, fs.ErrNotExist) {
		err = unix.Mknod(path, unix.S_IFBLK|0o600, int(m.Number))
	}
	if err != nil && !errors.Is(err, unix.EEXIST) { // udev was faster
		return lvm.Errorf(lvm.KindInternal, "cannot create the name of an encrypted mapping: %s: %w", path, err)
	}
	return nil
}

// removeMapping also removes the name in /dev/mapper, which cryptsetup created itself, without udev: it would lead to the next
// device with the same number.
func (m linux) removeMapping(ctx context.Context, name string) error {
	deadline := time.Now().Add(unusedPatience)
	for {
		err := control.Remove(dm.Key{Name: name})
		switch {
		case err == nil, errors.Is(err, unix.ENXIO):
			if err := os.Remove(filepath.Join("/dev/mapper", name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return lvm.Errorf(lvm.KindInternal, "cannot remove the name of a closed mapping: %w", err)
			}
			return nil
		case !errors.Is(err, unix.EBUSY):
			return lvm.Errorf(lvm.KindInternal, "cannot close the encrypted mapping %s: %w", name, err)
		case time.Now().After(deadline):
			return lvm.Errorf(lvm.KindInUse, "cannot close the encrypted mapping %s: it is in use by %s", name, m.users(name))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(unusedPause):
		}
	}
}

// users names the devices on a mapping, or else says how to find who uses it.
func (m linux) users(name string) string {
	found, err := m.mapping(name)
	if err != nil {
		return "a pod or a program of this node: stop it"
	}
	if names, err := holders(found.Number); err == nil && len(names) > 0 {
		return "the device " + strings.Join(names, ", ") + ": remove that device"
	}
	return "a pod or a program of this node: stop it; " + dm.FindUsers("/dev/mapper/"+name, found.Number)
}

// holders returns the devices on a device, by device-mapper's names or the kernel's.
func holders(device uint64) (names []string, err error) {
	dir := filepath.Join("/sys/dev/block", dm.FormatNumber(device), "holders")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := entry.Name()
		if content, err := os.ReadFile(filepath.Join(dir, name, "dm/name")); err == nil {
			name = strings.TrimSpace(string(content))
		}
		names = append(names, name)
	}
	return names, nil
}
