package node

import (
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// CanResize reads the superblock from the device, past the mount. That of a mounted xfs may be older than the last resize, and
// Resize then does nothing; it is never newer.
func (m machine) CanResize(device, fsType string) (bool, error) {
	at, known := superblocks[fsType]
	if !known {
		return false, nil
	}
	block, err := m.Stat(device)
	if err != nil {
		return false, err
	}
	super, err := readSuperblock(device, at)
	if err != nil {
		return false, err
	}
	return canResize(fsType, super, block.Size), nil
}

// Resize runs the tool for the mounted file system, without a probe of the device.
func (m machine) Resize(device, path, fsType string) error {
	argv := map[string][]string{
		"ext4":  {"resize2fs", device},
		"xfs":   {"xfs_growfs", "-d", path},
		"btrfs": {"btrfs", "filesystem", "resize", "max", path},
	}[fsType]
	if argv == nil {
		return lvm.Errorf(lvm.KindInternal, "cannot resize a file system of type %q", fsType)
	}
	if words, err := m.run(m.exec.Command(argv[0], argv[1:]...)); err != nil {
		return lvm.Errorf(lvm.KindInternal, "the volume is expanded but its file system is not resized yet; the driver retries when the volume is staged or expanded: %s: %w: %s",
			strings.Join(argv, " "), err, words)
	}
	return nil
}
