package luks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// NewVolume returns the volume with a handle on a device: that of the logical volume with a UUID. It derives the volume's other names.
func NewVolume(handle, lvUUID, device string) Volume {
	return Volume{Handle: handle, UUID: lvUUID, Device: device, name: mappingName(handle), headerUUID: uuidOf(lvUUID)}
}

// namePrefix begins the device-mapper name of each mapping of this driver. No name of LVM's begins like that: in it, a single
// hyphen is followed by a logical volume's name with doubled hyphens, or by a layer's name, and no layer has this name.
const namePrefix = "nodelvm-luks-"

// mappingName returns the device-mapper name of a volume's mapping. It derives from the handle alone, and has a constant length,
// because it is a part of device-mapper's UUIDs, which have at most 128 characters.
func mappingName(handle string) string {
	sum := sha256.Sum256([]byte(handle))
	return namePrefix + hex.EncodeToString(sum[:16])
}

// uuidOf returns the UUID in the header of a logical volume (RFC 9562, version 8).
func uuidOf(lvUUID string) string {
	sum := sha256.Sum256([]byte("nodelvm luks2 " + lvUUID))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// mappingUUID returns the device-mapper UUID that cryptsetup gives a mapping.
func mappingUUID(headerUUID, name string) string {
	return "CRYPT-LUKS2-" + strings.ReplaceAll(headerUUID, "-", "") + "-" + name
}

// Mapping is a volume's dm-crypt device.
type Mapping struct {
	Exists    bool
	Live      bool // it has a table; without one, a cryptsetup open was killed
	Suspended bool
	Number    uint64 // dev_t
	UUID      string // device-mapper's
	Size      lvm.Bytes
	Table     Table
}

// Path returns the path of the device node.
func (m Mapping) Path() string { return fmt.Sprintf("/dev/dm-%d", unix.Minor(m.Number)) }

// Table has the parts of a dm-crypt table that the driver checks. It has no key: that is in the kernel's keyring.
type Table struct {
	Target  string
	Device  string // the device below it, "253:4"
	Offset  lvm.Bytes
	KeyGone bool // cryptsetup luksSuspend has wiped the key
}

// parseTable parses the parameters of a table (Linux, Documentation/admin-guide/device-mapper/dm-crypt.rst): cipher, key, IV
// offset, device, offset in sectors, optional ones.
func parseTable(target, params string) (Table, error) {
	t := Table{Target: target}
	if target != "crypt" {
		return t, nil
	}
	fields := strings.Fields(params)
	if len(fields) < 5 {
		return t, fmt.Errorf("the table of a dm-crypt device has %d fields", len(fields)) // not the table itself: it can contain a key
	}
	sectors, err := strconv.ParseInt(fields[4], 10, 54)
	if err != nil || sectors < 0 {
		return t, fmt.Errorf("the table of a dm-crypt device has the offset %q", fields[4])
	}
	t.KeyGone, t.Device, t.Offset = fields[1] == "-", fields[3], lvm.Bytes(sectors)*512
	return t, nil
}
