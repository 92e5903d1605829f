package disks

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// system is where the kernel and udev describe the node's disks.
type system struct {
	sys string // mount point of sysfs
	dev string // folder of device nodes
}

// identify describes the disk below a block device ("/dev/sdb1"). It reads files of sysfs, of which some drivers ask the disk.
func (s system) identify(device string) report.Disk {
	d := report.Disk{Path: clean(device)}
	resolved, err := filepath.EvalSymlinks(device)
	if err != nil {
		return d
	}
	dir, err := s.wholeDisk(filepath.Base(resolved))
	if err != nil {
		return d
	}
	if sectors, err := strconv.ParseInt(text(dir, "size"), 10, 54); err == nil {
		d.Size = lvm.Bytes(sectors) * sectorSize
	}
	if level := text(dir, "md/level"); level != "" {
		d.Model = clean("software RAID " + level)
		return d
	}
	d.Model = text(dir, "device/model")
	d.Serial = cmp.Or(text(dir, "device/serial"), text(dir, "serial"), unitSerial(dir))
	d.WWN = cmp.Or(text(dir, "wwid"), text(dir, "device/wwid"))
	d.Slot = cmp.Or(enclosureSlot(dir), s.busPath(filepath.Base(dir)), text(dir, "device/address"))
	return d
}

// sectorSize is the unit of sysfs, whatever the disk's sectors are.
const sectorSize = 512

// wholeDisk returns the folder in sysfs of the disk that a partition or a multipath device is on.
func (s system) wholeDisk(name string) (string, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(s.sys, "class/block", name))
	if err != nil {
		return "", err
	}
	if text(dir, "partition") != "" {
		dir = filepath.Dir(dir)
	}
	if !strings.HasPrefix(text(dir, "dm/uuid"), "mpath-") {
		return dir, nil
	}
	paths, err := os.ReadDir(filepath.Join(dir, "slaves"))
	if err != nil {
		return "", err
	}
	for _, path := range paths {
		// The kernel keeps the link to a removed path until multipathd drops it: it leads nowhere.
		if _, err := os.Stat(filepath.Join(dir, "slaves", path.Name())); !errors.Is(err, os.ErrNotExist) {
			return filepath.EvalSymlinks(filepath.Join(s.sys, "class/block", path.Name()))
		}
	}
	return dir, nil
}

// unitSerial reads a SCSI disk's page "unit serial number" (SPC-6, page 80h): four bytes, and the number.
func unitSerial(dir string) string {
	page, err := os.ReadFile(filepath.Join(dir, "device/vpd_pg80"))
	if err != nil || len(page) < 4 {
		return ""
	}
	return clean(string(page[4:min(len(page), 4+int(page[3]))]))
}

// enclosureSlot is the name of the slot in an enclosure that the kernel knows (SES).
func enclosureSlot(dir string) string {
	links, err := filepath.Glob(filepath.Join(dir, "device", "enclosure_device:*"))
	if err != nil || len(links) == 0 {
		return ""
	}
	_, name, _ := strings.Cut(filepath.Base(links[0]), ":")
	return clean(name)
}

// busPath is udev's name for the place of a disk ("pci-0000:00:1f.2-ata-1").
func (s system) busPath(name string) string {
	dir := filepath.Join(s.dev, "disk/by-path")
	links, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, link := range links {
		if target, err := os.Readlink(filepath.Join(dir, link.Name())); err == nil && filepath.Base(target) == name {
			return clean(link.Name())
		}
	}
	return ""
}

func text(dir, file string) string {
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return ""
	}
	if value := clean(string(data)); value != missing {
		return value
	}
	return ""
}

// missing is what the kernel prints for a text that a driver has not set.
const missing = "(null)"

// longest is more than any model or serial number has.
const longest = 64

// clean makes what a disk's firmware says fit for a label, a log and a terminal.
func clean(value string) string {
	value = strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, value)), " ")
	if runes := []rune(value); len(runes) > longest {
		return string(runes[:longest])
	}
	return value
}
