package engine

import (
	"context"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// The pods of a group's volumes start although the driver cannot read the group's metadata: LVM activates a volume by its UUID.

// ActivateUnreadable returns the device of a volume of such a group. LVM activates the volume if necessary.
func (e *Engine) ActivateUnreadable(ctx context.Context, g lvm.Group, id lvm.ID, uuid string) (string, error) {
	path, active, err := e.FindDevice(ctx, id, uuid)
	if err != nil || active {
		return path, err
	}
	t, err := lvmcmd.TargetOf(g.Name, id.LV)
	if err != nil {
		return "", err
	}
	unlock, err := e.Locks.Acquire(ctx, id.VG, "activating volume "+id.LV)
	if err != nil {
		return "", err
	}
	defer unlock()
	failure := e.Run(ctx, g, []lvmcmd.Step{{Argv: lvmcmd.ActivateIfArgs(t, g, uuid)}})
	path, active, err = e.FindDevice(ctx, id, uuid)
	if err == nil && !active {
		err = lvm.Errorf(lvm.KindBusy, "cannot activate volume %s by its UUID: %w", id, OrNoEffect(failure))
	}
	return path, err
}

// LookupUnreadable returns what device-mapper knows of an active volume of such a group. It counts as one that was formatted: only the format
// mark on the volume itself proves that it was not. An encrypted volume shows that it is one while it is open.
func (e *Engine) LookupUnreadable(g lvm.Group, id lvm.ID) (lvm.Volume, error) {
	devices, err := e.Devices()
	if err != nil {
		return lvm.Volume{}, err
	}
	group := lvm.DeviceUUID(id.VG, "")
	for _, d := range devices {
		raw, is := strings.CutPrefix(d.UUID, group)
		if !is || len(raw) != 32 {
			continue
		}
		var stat unix.Stat_t
		if err := unix.Stat(d.Path, &stat); err != nil {
			continue // it was removed
		}
		if _, name, err := e.Machine.Kernel.Mapping(stat.Rdev); err == nil && name == dm.MapperName(g.Name, id.LV) {
			v := lvm.Volume{ID: id, UUID: ondisk.Dashed(raw), Group: g.Name, State: lvm.StateReady}
			if v.FormatMark, err = placeOfMark(d.Path); err == nil {
				v.Class.Encryption, err = e.openEncryption(id)
			}
			return v, err
		}
	}
	return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %s is not active, and the driver cannot read volume group %s: %s", id, g.Name, g.Unreadable)
}

// openEncryption returns the encryption of a volume as its open mapping shows it.
func (e *Engine) openEncryption(id lvm.ID) (lvm.Encryption, error) {
	if e.Config.Encryption == nil {
		return lvm.EncryptionNone, nil
	}
	if _, _, open, err := e.Config.Encryption.Mapping(id.String()); err != nil || !open {
		return lvm.EncryptionNone, err
	}
	return lvm.EncryptionLUKS2, nil
}

// placeOfMark returns where a new volume of the device's size has its format mark. The mapping of an encrypted one has its own at the same
// place.
func placeOfMark(path string) (lvm.Bytes, error) {
	device, err := os.Open(path)
	if err != nil {
		return 0, lvm.Errorf(lvm.KindBusy, "cannot determine the size of a volume: %w", err)
	}
	defer func() { _ = device.Close() }()
	size, err := device.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, lvm.Errorf(lvm.KindBusy, "cannot determine the size of a volume: %w", err)
	}
	return max(lvm.FormatMarkSize, lvm.FormatMarkOffset(lvm.Bytes(size))), nil
}
