package luks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// namePrefix begins the device-mapper name of each mapping of this driver. No name that LVM makes begins so: after one hyphen
// comes a logical volume's name, in which hyphens are doubled, or a layer's, of which none is called that.
const namePrefix = "nodelvm-luks-"

// MappingName is the device-mapper name of a volume's mapping. It follows from the handle alone, and has one length for all:
// device-mapper's UUIDs, of which it is a part, have at most 128 characters.
func MappingName(handle string) string {
	sum := sha256.Sum256([]byte(handle))
	return namePrefix + hex.EncodeToString(sum[:16])
}

// HeaderUUID is the UUID in the header of a logical volume (RFC 9562, version 8).
func HeaderUUID(lvUUID string) string {
	sum := sha256.Sum256([]byte("nodelvm luks2 " + lvUUID))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// mappingUUID is the device-mapper UUID that cryptsetup gives a mapping.
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

// Path is the device node.
func (m Mapping) Path() string { return fmt.Sprintf("/dev/dm-%d", minor(m.Number)) }

// Table is what the driver checks of a dm-crypt table. It has no key: the kernel's keyring holds that.
type Table struct {
	Target  string
	Device  string // "253:4", what it is on
	Offset  lvm.Bytes
	KeyGone bool // cryptsetup luksSuspend has wiped the key
}

// parseTable reads the parameters of a table (Linux, Documentation/admin-guide/device-mapper/dm-crypt.rst): cipher, key, IV offset, device,
// offset in sectors, optional ones.
func parseTable(target, params string) (Table, error) {
	t := Table{Target: target}
	if target != "crypt" {
		return t, nil
	}
	fields := strings.Fields(params)
	if len(fields) < 5 {
		return t, fmt.Errorf("the table of a dm-crypt device has %d fields", len(fields)) // and not the table: it can hold a key
	}
	sectors, err := strconv.ParseInt(fields[4], 10, 54)
	if err != nil || sectors < 0 {
		return t, fmt.Errorf("the table of a dm-crypt device has the offset %q", fields[4])
	}
	t.KeyGone, t.Device, t.Offset = fields[1] == "-", fields[3], lvm.Bytes(sectors)*512
	return t, nil
}
