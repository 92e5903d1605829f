package lvm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// blankEnds is how much at the beginning and at the end of a device must be zero: whatever libblkid does not know (a
// database's own format, a wiped partition table's leftovers) begins or ends there.
const blankEnds = 1 * MiB

// unfit tells, from what the kernel knows, why a device is not touched; "" if nothing is known against it. named: the
// configuration names exactly this device.
func (d disk) unfit(named bool) string {
	switch {
	case d.group != "":
		return fmt.Sprintf("it belongs to volume group %s", d.group)
	case len(d.uses) > 0:
		return "it " + d.uses[0]
	case d.silent:
		return "it does not answer: look at the kernel's log"
	case len(d.holders) > 0:
		return fmt.Sprintf("it is a part of %s", strings.Join(d.holders, ", "))
	case len(d.parts) > 0:
		return fmt.Sprintf("it has partitions (%s)", strings.Join(d.parts, ", "))
	case d.readOnly:
		return "it is read-only"
	case d.size < minPrepared:
		return fmt.Sprintf("it is smaller than %s", minPrepared)
	case d.partition && !named:
		return "it is a partition: name it without wildcards, if it is meant"
	case d.removable && !named:
		return "it is removable: name it without wildcards, if it is meant"
	case d.virtual && !named:
		return "it is not a disk but made of something else: name it without wildcards, if it is meant"
	}
	return ""
}

// grip is a device that is held for ourselves alone: the kernel refuses that while anybody in the node has it mounted, as
// swap, or below another device, in whatever container that may be.
type grip struct {
	file *os.File
	directFile
}

// seize takes hold of a device. refusal says who has it, or that it cannot be opened.
func (d disk) seize() (g *grip, refusal string) {
	fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_EXCL|unix.O_DIRECT|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EBUSY) {
		return nil, "somebody has it in use (it cannot be opened for one alone): it is mounted in another container, or a part of something"
	}
	if err != nil {
		return nil, fmt.Sprintf("it cannot be opened: %v", err)
	}
	g = &grip{os.NewFile(uintptr(fd), d.path), directFile{fd}}
	if err := g.isDevice(d.number); err != nil {
		g.release()
		return nil, err.Error()
	}
	return g, ""
}

func (g *grip) release() { _ = g.file.Close() }

// content says what a device that is held holds; "" for nothing at all. Nothing is written.
func (g *grip) content(ctx context.Context, d disk, signatures func(context.Context, string) ([]string, error)) string {
	if d.pv != nil {
		return "it is a physical volume of LVM that is in no group here: if it is not needed, pvremove " + d.path
	}
	found, err := signatures(ctx, d.path)
	if err != nil {
		return err.Error()
	}
	if len(found) > 0 {
		return "it holds " + strings.Join(found, " and ")
	}
	for _, end := range []span{{0, int64(blankEnds)}, {int64(d.size - blankEnds), int64(blankEnds)}} {
		data, err := g.read(end)
		if err != nil {
			return fmt.Sprintf("it cannot be read: %v", err)
		}
		if i := slices.IndexFunc(data, func(b byte) bool { return b != 0 }); i >= 0 {
			return fmt.Sprintf("it holds data of an unknown kind (at byte %d): if that is not needed, blkdiscard %s, or overwrite its first and last MiB with zeroes", end.offset+int64(i), d.path)
		}
	}
	return ""
}

// pvMark begins the UUID of each physical volume that is made here: one that an interrupted run left without a group is
// known by it.
const pvMark = "NodeLV"

// unfinished tells whether the device is a physical volume that was made here for a group, and never became a part of
// one: it bears our mark, and no group but this one, in the commit that was to take it in, was ever written to it. ours is
// the group as it is; nil if it is not there.
func (g *grip) unfinished(d disk, name string, ours *Group) bool {
	if d.pv == nil || d.pv.err != nil || !strings.HasPrefix(d.pv.label.uuid, pvMark) || len(d.pv.label.areas) == 0 {
		return false
	}
	ringAt := d.pv.label.areas[0]
	if slices.ContainsFunc(d.pv.areas, func(a area) bool { return a.text != nil }) || ringAt.offset+ringAt.size < int64(blankEnds) {
		return false
	}
	ring, err := g.read(span{ringAt.offset + mdaHeaderSize, int64(blankEnds) - ringAt.offset - mdaHeaderSize})
	if err != nil {
		return false
	}
	text, rest, _ := bytes.Cut(ring, []byte{0})
	if len(bytes.Trim(rest, "\x00")) > 0 {
		return false
	}
	if len(text) == 0 {
		return true
	}
	first, err := importGroup(string(text))
	if err != nil || first.group.Name != name {
		return false
	}
	if ours == nil {
		return first.group.Seqno == 1
	}
	return first.group.UUID == ours.UUID && first.group.Seqno == ours.Seqno+1 // a later one was committed: somebody took it out again
}
