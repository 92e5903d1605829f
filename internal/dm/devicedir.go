package dm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// DeviceDir is LVM's device directory (lvm.conf, devices/dir). The driver's lvm needs names of volumes to wipe a new one and to
// check a thin pool. It creates them here and not in the host's /dev: there udev creates and removes the names. udev would not
// remove a name that lvm created, and that would lead to the next device with the same number.
type DeviceDir struct{ Path string }

func DeviceDirOf(c lvm.Config) DeviceDir { return DeviceDir{filepath.Join(c.SystemDir, "dev")} }

// Prepare creates the directory. The Host calls undo at its end.
func (d DeviceDir) Prepare() (undo func(), err error) {
	undo = func() {}
	if err := os.MkdirAll(d.Path, 0o700); err != nil {
		return undo, fmt.Errorf("cannot create LVM's device directory: %w", err)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(d.Path, &stat); err != nil {
		return undo, fmt.Errorf("cannot inspect LVM's device directory %s: %w", d.Path, err)
	}
	if stat.Flags&unix.ST_NODEV == 0 {
		return undo, nil
	}
	// A host mounts /run like that; a container does not.
	if err := unix.Mount("nodelvm", d.Path, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0700,size=4m"); err != nil {
		return undo, fmt.Errorf("LVM cannot open devices in %s, which is mounted with nodev, and the driver cannot mount a tmpfs there: %w", d.Path, err)
	}
	return func() { _ = unix.Unmount(d.Path, unix.MNT_DETACH) }, nil
}

// Clear removes the names that earlier commands left for a group. An admin's lvm may have removed or renamed their devices
// since, or a command was killed: LVM refuses to create a thin pool or a group whose name exists. The caller makes sure that no
// other command works on the group.
func (d DeviceDir) Clear(group lvm.VGName) error {
	if d.Path == "" || group == "" {
		return nil
	}
	mapper := filepath.Join(d.Path, "mapper")
	err := removeNames(mapper, func(name string) bool { return isMapperNameOf(group, name) })
	links := filepath.Join(d.Path, string(group))
	if err == nil && filepath.Dir(links) == d.Path && links != mapper {
		if err = removeNames(links, func(string) bool { return true }); err == nil {
			err = os.Remove(links)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot remove the names that earlier commands left: %w", err)
	}
	return nil
}

func removeNames(dir string, is func(name string) bool) error {
	names, err := ReadNames(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		if err == nil && is(name) {
			err = os.Remove(filepath.Join(dir, name))
		}
	}
	return err
}

// MapperName is device-mapper's name of a logical volume.
func MapperName(group lvm.VGName, lv string) string {
	return strings.ReplaceAll(string(group), "-", "--") + "-" + strings.ReplaceAll(lv, "-", "--")
}

// isMapperNameOf reports whether a device-mapper name is that of a volume of the group, hidden ones included.
func isMapperNameOf(group lvm.VGName, name string) bool {
	rest, is := strings.CutPrefix(name, strings.ReplaceAll(string(group), "-", "--")+"-")
	return is && rest != "" && rest[0] != '-'
}
