package host

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// Owns reports whether a block device, by its number, is the volume's, or no longer exists. It asks device-mapper for the
// group's UUID and the volume's name, not LVM: a pod must end whatever state the disks are in. Only if the name differs, as
// after lvrename, it reads the disks for the name in the volume's handle.
func (h *Host) Owns(ctx context.Context, id lvm.ID, device uint64) (bool, error) {
	if unix.Major(device) == 0 { // not a block device: tmpfs, a network file system
		return false, nil
	}
	uuid, name, err := h.engine.Machine.Kernel.Mapping(device)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, lvm.Errorf(lvm.KindInternal, "cannot determine which volume device %s belongs to: %w", dm.FormatNumber(device), err)
	}
	if !strings.HasPrefix(uuid, lvm.DeviceUUID(id.VG, "")) || len(uuid) != len(lvm.DeviceUUID(id.VG, ""))+lvUUIDSize {
		return false, nil
	}
	if mappedLV(name) == id.LV {
		return true, nil
	}
	if h.engine.Machine.Reader == nil {
		return false, nil
	}
	s, err := h.engine.Machine.Reader.Read(ctx)
	if err != nil {
		return false, nil //nolint:nilerr // it has another name, and nothing tells that it had this one
	}
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			if g.UUID == id.VG && lvm.DeviceUUID(g.UUID, lv.UUID) == uuid {
				return lv.HandleName() == id.LV, nil
			}
		}
	}
	return false, nil
}

// lvUUIDSize is the length of a logical volume's UUID without its hyphens; a hidden layer's device has a suffix after it.
const lvUUIDSize = 32

// mappedLV returns the logical volume's part of a device-mapper name, "vg--a-pvc--1": LVM doubles each hyphen within the two
// names.
func mappedLV(name string) string {
	const hyphen = "\x00"
	_, lv, _ := strings.Cut(strings.ReplaceAll(name, "--", hyphen), "-")
	return strings.ReplaceAll(lv, hyphen, "-")
}
