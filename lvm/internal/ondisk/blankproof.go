package ondisk

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// provenHead and provenTail are the sizes of the beginning and the end of a blank device that must be zero. Formats that
// libblkid does not know (a database's, the rest of a wiped partition table) begin or end there. So does, at the second MiB,
// the first partition of a removed table.
const (
	provenHead = 2 * lvm.MiB
	provenTail = 1 * lvm.MiB
)

// IneligibleReason returns why, according to the kernel, the driver does not use a device; "": the kernel reports no reason.
// named: the configuration names exactly this device.
func (d Disk) IneligibleReason(named bool) string {
	switch {
	case d.MadeOf != MadeOfDisks:
		return d.Reason
	case d.Group != "":
		return fmt.Sprintf("it belongs to volume group %s", d.Group)
	case len(d.uses) > 0:
		return "it " + d.uses[0]
	case d.unresponsive:
		return "it is unresponsive: see the kernel's log"
	case len(d.holders) > 0:
		return fmt.Sprintf("it is a part of %s", strings.Join(d.holders, ", "))
	case len(d.parts) > 0:
		return fmt.Sprintf("it has partitions (%s)", strings.Join(d.parts, ", "))
	case d.readOnly:
		return "it is read-only"
	case d.zoned:
		return "it is zoned and accepts only sequential writes, so no volume can use it"
	case d.Size < lvm.MinDeviceSize:
		return fmt.Sprintf("it is smaller than %s", lvm.MinDeviceSize)
	case d.partition && !named:
		return "it is a partition: select it with a path without wildcards to use it"
	case d.removable && !named:
		return "it is removable: select it with a path without wildcards to use it"
	case d.remote && !named:
		return "it is reached by iSCSI or Fibre Channel, where other hosts, or another driver's pods, may have it: select it with a path without wildcards if only this node uses it"
	case d.virtual && strings.HasPrefix(d.Name, "nvme") && !named:
		return "it is an NVMe disk that can be reached over several paths (it has several ports, or comes over a network), so other hosts may have it: select it with a path without wildcards if only this node uses it"
	case d.virtual && !named:
		return "it is not a disk but made of something else: select it with a path without wildcards to use it"
	}
	return ""
}

// exclusiveDevice is a device that is open exclusively. The kernel refuses an exclusive open while the device is mounted in any
// container, swap space, or below another device.
type exclusiveDevice struct {
	file *os.File
	directFile
}

// OpenExclusive opens a device exclusively. refusal explains what uses it, why it cannot be opened, or why it is ineligible.
func (d Disk) OpenExclusive(where Positions) (g *exclusiveDevice, refusal string) {
	fd, err := unix.Open(d.Path, unix.O_RDONLY|unix.O_EXCL|unix.O_DIRECT|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, "it is in use (it cannot be opened exclusively): mounted in another container, or part of another device"
	}
	if err != nil {
		return nil, fmt.Sprintf("it cannot be opened: %v", err)
	}
	g = &exclusiveDevice{os.NewFile(uintptr(fd), d.Path), directFile{Fd: fd}}
	r := prober{positions: where}
	err = r.isListed(d.BlockDevice, g.directFile)
	pos, openErr := r.opened(d.BlockDevice, g.directFile)
	if err = cmp.Or(err, openErr); err != nil {
		g.Release()
		return nil, err.Error()
	}
	if pos.MadeOf != MadeOfDisks {
		g.Release()
		return nil, pos.Reason
	}
	return g, ""
}

func (g *exclusiveDevice) Release() { _ = g.file.Close() }

// Content describes the content of an exclusive device; "" if it is blank. It writes nothing.
func (g *exclusiveDevice) Content(ctx context.Context, d Disk, signatures func(context.Context, string) ([]string, error)) string {
	if d.pv != nil {
		return d.pv.words(d.Path)
	}
	found, err := signatures(ctx, d.Path)
	if err != nil {
		return err.Error()
	}
	if len(found) > 0 {
		return "it holds " + strings.Join(found, " and ")
	}
	for _, end := range []span{{0, int64(provenHead)}, {int64(d.Size - provenTail), int64(provenTail)}} {
		data, err := g.read(end)
		if err != nil {
			return fmt.Sprintf("it cannot be read: %v", err)
		}
		if i := firstByte(data); i >= 0 {
			return fmt.Sprintf("it holds data of an unknown kind (at byte %d): if that is not needed, blkdiscard -z %s, or overwrite its first two MiB and its last with zeroes", end.offset+int64(i), d.Path)
		}
	}
	return ""
}

// PVUUIDPrefix is the start of the UUID of each physical volume that the driver creates. It identifies one that an interrupted
// prepare left without a group.
const PVUUIDPrefix = "NodeLV"

// words describes a physical volume that no group on this node includes.
func (p probe) words(path string) string {
	if p.unaccepted {
		return "it is a physical volume that the node's record of accepted ones does not name. If it is yours, run nodelvm disks accept " + path + "; if you do not need it, pvremove"
	}
	for _, a := range p.areas {
		if a.text == nil {
			continue
		}
		group := "a volume group"
		if im, err := a.text.read(); err == nil {
			group = "volume group " + string(im.group.Name)
		}
		return "it is a physical volume of " + group + " that is not in use there: a copy of another disk, or one that was missing for a while"
	}
	if p.err != nil {
		return fmt.Sprintf("it is a physical volume of LVM whose content the driver cannot read: %v", p.err)
	}
	return "it is a physical volume of LVM that is in no group here. If you do not need it, and no other disk of its volume group is missing, run pvremove " + path
}

// Unfinished reports whether the device is a physical volume that the driver created for a group, but that never became a part
// of it. Such a device has the driver's UUID prefix. Its only metadata, if any, is that group's, from the commit that adds the
// device, and everything else that Content reads is zero. ours is the group now; nil if it does not exist.
func (g *exclusiveDevice) Unfinished(d Disk, name lvm.VGName, ours *lvm.Group) bool {
	if d.pv == nil || d.pv.err != nil || !strings.HasPrefix(d.pv.label.uuid, PVUUIDPrefix) || len(d.pv.label.areas) != 1 {
		return false
	}
	at, size := d.pv.label.areas[0].offset, d.pv.label.areas[0].size
	if len(d.pv.areas) != 1 || d.pv.areas[0].text != nil { // with an ignored area, it may belong to a group whose other disks are missing
		return false
	}
	if at < labelSectors*lvm.SectorSize || at+mdaHeaderSize > int64(provenHead) || at+size < int64(lvm.MiB) {
		return false
	}
	head, err := g.read(span{0, int64(provenHead)})
	tail, tailErr := g.read(span{int64(d.Size - provenTail), int64(provenTail)})
	if err != nil || tailErr != nil {
		return false
	}
	clear(head[lvm.SectorSize : 2*lvm.SectorSize]) // the label
	text, rest, _ := bytes.Cut(head[at+mdaHeaderSize:], []byte{0})
	if firstByte(head[:at]) >= 0 || firstByte(rest) >= 0 || firstByte(tail) >= 0 {
		return false
	}
	if len(text) == 0 {
		return true
	}
	first, err := importGroup(string(text))
	if err != nil || first.group.Unreadable != "" || first.group.Name != name {
		return false
	}
	if ours == nil {
		return first.group.Seqno == 1
	}
	return first.group.UUID == ours.UUID && first.group.Seqno == ours.Seqno+1 // a later commit: an admin removed the device from the group
}

// firstByte returns the index of the first byte that is not zero; -1: none.
func firstByte(data []byte) int { return slices.IndexFunc(data, func(b byte) bool { return b != 0 }) }

// NewPVUUID returns a UUID in LVM's notation with the driver's prefix.
func NewPVUUID() string {
	raw := PVUUIDPrefix + strings.ToLower(rand.Text()) // 26 characters of base 32
	return Dashed(raw[:32])
}
