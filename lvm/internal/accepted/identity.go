package accepted

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Identity is what distinguishes a device from all others, in every boot. Nothing of it comes from the device's content.
type Identity struct {
	WWID      string `json:"wwid,omitempty"`      // Of the hardware (NVMe: NGUID, EUI; SCSI: VPD page 83h), or of a device-mapper device or an array.
	Serial    string `json:"serial,omitempty"`    // Of the hardware.
	Place     string `json:"place,omitempty"`     // Where it is attached, without the numbers that the kernel counts: for hardware without WWID and serial.
	Partition int    `json:"partition,omitempty"` // 0: the whole device
}

// Same reports whether two identities are of one device. A kernel can report another kind of WWID than an earlier one, for one serial in one
// place. Otherwise a place counts only between devices that have neither: a device that has one was never recorded without.
func (i Identity) Same(j Identity) bool {
	switch {
	case i.Partition != j.Partition || i == Identity{} || j == Identity{}:
		return false
	case i.WWID != "" && i.WWID == j.WWID:
		return true
	case i.Serial != "" && i.Serial == j.Serial:
		return i.WWID == "" || j.WWID == "" || i.Place == j.Place
	}
	return i.isWeak() && j.isWeak() && i.Place == j.Place
}

// isWeak reports whether only its place identifies the device.
func (i Identity) isWeak() bool { return i.WWID == "" && i.Serial == "" }

// String describes the identity in a message.
func (i Identity) String() string {
	var text string
	switch {
	case i.WWID != "":
		text = "WWID " + i.WWID
	case i.Serial != "":
		text = "serial " + i.Serial
	default:
		text = i.Place
	}
	if i.Partition > 0 {
		text += ", partition " + strconv.Itoa(i.Partition)
	}
	return text
}

// Identify reads the identity of a block device from sysfs.
func Identify(sys, name string) (Identity, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, "class/block", name))
	if err != nil {
		return Identity{}, err
	}
	part := 0
	if number := read(dir, "partition"); number != "" {
		if part, err = strconv.Atoi(number); err != nil {
			return Identity{}, err
		}
		dir = filepath.Dir(dir)
	}
	id := identifyWhole(sys, dir)
	id.Partition = part
	return id, nil
}

func identifyWhole(sys, dir string) Identity {
	uuid := read(dir, "dm/uuid")
	switch {
	case multipath.MatchString(uuid):
		return Identity{WWID: multipathWWID(uuid)}
	case uuid != "":
		return Identity{WWID: "dm " + uuid}
	}
	if array := read(dir, "md/uuid"); array != "" {
		return Identity{WWID: "md " + array}
	}
	if file := read(dir, "loop/backing_file"); file != "" {
		return Identity{Place: "loop " + file}
	}
	return Identity{
		WWID:   cmp.Or(number(read(dir, "wwid")), number(read(dir, "device/wwid"))),
		Serial: cmp.Or(number(read(dir, "device/serial")), number(read(dir, "serial")), number(unitSerial(dir))),
		Place:  placeOf(sys, dir),
	}
}

// multipath matches the device-mapper UUID of a disk over several paths: a digit for the kind of its number, and the number.
var multipath = regexp.MustCompile(`^mpath-([23][0-9a-f]+|(eui|uuid|nvme)\..+)$`)

// multipathWWID returns the disk's WWID, as each path reports it. The paths may be gone.
func multipathWWID(uuid string) string {
	id := strings.TrimPrefix(uuid, "mpath-")
	switch id[0] {
	case '2':
		return "eui." + id[1:]
	case '3':
		return "naa." + id[1:]
	}
	return id
}

// number returns what hardware reports as its number; "" for what stands for none: zeros, or the words of a driver.
func number(text string) string {
	_, digits, typed := strings.Cut(text, ".") // "eui.00a0..."
	if !typed {
		digits = text
	}
	if strings.Trim(digits, "0 -_:.") == "" || slices.Contains([]string{"(null)", "none", "unknown"}, strings.ToLower(text)) {
		return ""
	}
	return text
}

// counted begins the parts of a device's path in sysfs whose number the kernel gives in the order in which it finds devices.
var counted = regexp.MustCompile(`^(host|target|virtio|ata|nvme|session|nvme-subsys)[0-9]+`)

// placeOf returns the device's path in sysfs without those numbers, or, for a device without a bus, its name.
func placeOf(sys, dir string) string {
	root, err := filepath.EvalSymlinks(sys)
	if err != nil {
		root = sys
	}
	path, err := filepath.Rel(filepath.Join(root, "devices"), dir)
	if err != nil || strings.HasPrefix(path, "..") {
		path = dir
	}
	parts := strings.Split(path, string(filepath.Separator))
	if i := slices.Index(parts, "block"); i > 0 && parts[0] != "virtual" {
		parts = parts[:i]
	}
	for i, part := range parts {
		parts[i] = counted.ReplaceAllString(part, "$1*")
		if i == len(parts)-1 && strings.Count(part, ":") == 3 { // host:bus:target:lun
			_, lun, _ := strings.Cut(part, ":")
			parts[i] = "*:" + lun
		}
	}
	return clean(strings.Join(parts, "/"))
}

// unitSerial reads a SCSI disk's page "unit serial number" (SPC-6, page 80h): four bytes, and the number.
func unitSerial(dir string) string {
	page, err := os.ReadFile(filepath.Join(dir, "device/vpd_pg80"))
	if err != nil || len(page) < 4 {
		return ""
	}
	return clean(string(page[4:min(len(page), 4+int(page[3]))]))
}

func read(dir, file string) string {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	return clean(string(data))
}

// longest limits each text of the record, in bytes.
const longest = 256

// clean returns a text that fits the record: printable ASCII without repeated spaces. Underlines stand for other bytes.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == 0 {
			return -1
		}
		if r > '~' || r < ' ' {
			return ' '
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	return text[:min(len(text), longest)]
}

// otherDrivers returns the kubelet's plugins besides this driver that have, or had, a directory or a socket below the kubelet's root
// directory; "": there is no kubelet. A storage driver has one before its first volume reaches the node. An error: it is unknown which
// there are.
func otherDrivers(kubelet, driver string) ([]string, error) {
	if kubelet == "" {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Join(kubelet, "pods")); err != nil {
		return nil, err // another directory than the kubelet's
	}
	var others []string
	for _, place := range []struct{ dir, ours string }{
		{"plugins", "|kubernetes.io|" + driver + "|"},
		{"plugins/kubernetes.io", "|csi|"},
		{"plugins_registry", "|" + driver + "-reg.sock|"},
	} {
		entries, err := os.ReadDir(filepath.Join(kubelet, place.dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if !strings.Contains(place.ours, "|"+e.Name()+"|") {
				others = append(others, clean(strings.TrimSuffix(e.Name(), "-reg.sock")))
			}
		}
	}
	return others, nil
}
