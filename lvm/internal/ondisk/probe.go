package ondisk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

const (
	headSize = 8192 // label and header of the first metadata area, in one read
	// maxText limits what a header can make the reader read and keep. LVM can write that much into an area of 64 MiB, the
	// largest that the driver creates. A volume has 0.4 to 3 KiB of text, so more than ten thousand volumes fit. The driver
	// uses only that much of a larger area.
	maxText     = 32 * lvm.MiB
	tornRetries = 5 // a commit between two reads shows as a wrong checksum
	tornDelay   = 2 * time.Millisecond
)

// probe is the result of reading one device.
type probe struct {
	device BlockDevice
	position
	label *label // nil: no PV
	areas []area // without ignored ones
	err   error  // the device is unreadable, or a part of it, or what it is made of

	unaccepted bool   // the node's record does not name the PV: nothing but its label was read
	hidden     *label // the label under a partition table, for which LVM ignores the device; nil: none
}

// errUnresponsive is the error of an unresponsive device; the rest of its probe is its last answer.
var errUnresponsive = errors.New("it does not answer")

func (p probe) unresponsive() bool { return errors.Is(p.err, errUnresponsive) }

// lost returns the probe of a device that had a physical volume, and of which it is now unknown what it is made of, or whose
// disks were all removed: it does not answer. A device that is made of a volume or of nothing now has another content.
func (p probe) lost(before probe) (probe, bool) {
	had := before.label != nil && before.MadeOf == MadeOfDisks
	if !had || p.MadeOf != madeOfRemoved && p.MadeOf != madeOfUnknown {
		return p, false
	}
	before.device, before.err = p.device, fmt.Errorf("%w: %s", errUnresponsive, p.Reason)
	return before, true
}

// area is one metadata area with its committed text.
type area struct {
	where  span
	header areaHeader
	text   *groupText // nil: the PV is in no group
}

// prober reads devices; before is the device's last answer, or zero.
type prober struct {
	positions   Positions
	mustBeBlock bool
	texts       *groupTexts
	pause       func(time.Duration)                 // before it reads an incomplete commit again; nil means time.Sleep
	accepts     func(d BlockDevice, pv string) bool // whether the node's record names the PV; nil: there is no record
}

// probe reads a device's label and metadata, if its position permits. It needs three system calls for a disk without a label,
// five for a disk of an unchanged group, and one more for a new text.
func (r prober) probe(d BlockDevice, before probe) probe {
	p := probe{device: d}
	if p.position = r.unopened(d); p.MadeOf != MadeOfDisks && p.MadeOf != MadeOfNothing {
		p.err = p.position.err
		return p
	}
	f, err := OpenDirect(d.Path, r.mustBeBlock)
	if err != nil {
		p.err = fmt.Errorf("open: %w", err)
		return p
	}
	defer func() { _ = unix.Close(f.Fd) }()
	p.position, p.err = r.opened(d, f)
	switch {
	case p.err != nil:
	case p.MadeOf == MadeOfDisks:
		return r.content(p, f, before)
	case p.MadeOf == MadeOfNothing:
		_, p.err = f.read(span{0, headSize}) // fails if the disks below it failed or were removed, such as all paths of a multipath device
	}
	return p
}

// content reads the label and the metadata of an open device whose position permits.
func (r prober) content(p probe, f directFile, before probe) probe {
	d := p.device
	head, err := f.read(span{0, headSize})
	if err != nil {
		p.err = err
		return p
	}
	if !d.partition && hasPartitions(head) {
		p.hidden, _ = findLabel(head) // one that is damaged says nothing
		return p
	}
	if p.label, p.err = findLabel(head); p.label == nil || p.err != nil {
		return p
	}
	if d.Disk {
		if err := r.isListed(d, f); err != nil {
			return probe{device: d, err: err} // the label is another device's
		}
	}
	if r.accepts != nil && !r.accepts(d, p.label.uuid) {
		p.unaccepted = true
		return p // as if its metadata was never read
	}
	for _, where := range p.label.areas {
		a, err := r.area(f, head, where, before)
		if err != nil {
			p.err = errors.Join(p.err, err)
		} else if !a.header.ignored {
			p.areas = append(p.areas, a)
		}
	}
	return p
}

// unopened returns the position of a device before it is opened, if its position can change: an open device that is made of a
// volume would prevent its owner from removing it. The position of a loop device needs an open device.
func (r prober) unopened(d BlockDevice) position {
	if d.Disk || unix.Major(d.number) == majorLoop {
		return position{}
	}
	return r.positions.of(d, notOpen)
}

// opened returns the position of an open device, which can be neither detached nor replaced.
func (r prober) opened(d BlockDevice, f directFile) (position, error) {
	if d.Disk {
		return position{}, nil
	}
	if err := r.isListed(d, f); err != nil {
		return position{}, err
	}
	pos := r.positions.of(d, f.Fd)
	return pos, pos.err
}

// isListed checks that an open device is the listed one.
func (r prober) isListed(d BlockDevice, f directFile) error {
	if err := f.IsDevice(d.number); err != nil {
		return err
	}
	return r.positions.unchanged(d)
}

// area reads one metadata area. head is already read, and valid for the first attempt only.
func (r prober) area(f directFile, head []byte, where span, before probe) (area, error) {
	pause := r.pause
	if pause == nil {
		pause = time.Sleep
	}
	for try := 0; ; try++ {
		a, err := r.areaOnce(f, head, where, before)
		if err == nil || try == tornRetries {
			return a, err
		}
		head = nil
		pause(tornDelay << try)
	}
}

func (r prober) areaOnce(f directFile, head []byte, where span, before probe) (area, error) {
	if where.offset > int64(len(head))-mdaHeaderSize {
		var err error
		if head, err = f.read(span{where.offset, mdaHeaderSize}); err != nil {
			return area{}, err
		}
	} else {
		head = head[where.offset:]
	}
	h, err := decodeAreaHeader(head, where)
	a := area{where: where, header: h}
	if err != nil || h.ignored || h.text.size == 0 {
		return a, err
	}
	// The header records a commit, with the text's location and checksum. If it is unchanged, so is the text.
	for _, known := range before.areas {
		if known.where == where && known.header == h && known.text != nil {
			return known, nil
		}
	}
	if lvm.Bytes(h.text.size) > maxText {
		return area{}, fmt.Errorf("the metadata area at byte %d has %d bytes of text, more than are read", where.offset, h.text.size)
	}
	var text []byte
	for _, piece := range h.pieces(where.offset) {
		part, err := f.read(piece)
		if err != nil {
			return area{}, err
		}
		if text == nil {
			text = part // the usual text is one piece: no copy
		} else {
			text = append(text, part...)
		}
	}
	if lvmChecksum(text) != h.checksum {
		return area{}, fmt.Errorf("the checksum of the metadata at byte %d is wrong", where.offset)
	}
	a.text = r.texts.intern(h.checksum, text)
	return a, nil
}

// directFile reads past the page cache, as LVM writes: a cached page could be old.
type directFile struct{ Fd int }

func OpenDirect(path string, mustBeBlock bool) (directFile, error) {
	flags := unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK
	if mustBeBlock {
		flags |= unix.O_DIRECT
	}
	fd, err := unix.Open(path, flags, 0)
	return directFile{Fd: fd}, err
}

// IsDevice checks that the path led to the device in sysfs.
func (f directFile) IsDevice(number uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(f.Fd, &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev != number {
		return fmt.Errorf("its node in /dev has number %d:%d, the kernel's device %d:%d",
			unix.Major(st.Rdev), unix.Minor(st.Rdev), unix.Major(number), unix.Minor(number))
	}
	return nil
}

// read returns exactly the bytes of s, in aligned memory.
func (f directFile) read(s span) ([]byte, error) {
	start := s.offset / dm.DirectAlign * dm.DirectAlign
	end := (s.offset + s.size + dm.DirectAlign - 1) / dm.DirectAlign * dm.DirectAlign
	buf := dm.AlignedMemory(int(end - start))
	have := 0
	for have < len(buf) {
		n, err := unix.Pread(f.Fd, buf[have:], start+int64(have))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read %d bytes at byte %d: %w", s.size, s.offset, inWords(err))
		}
		if n == 0 {
			break
		}
		have += n
	}
	if skip := s.offset - start; int64(have) >= skip+s.size {
		return buf[skip : skip+s.size], nil
	}
	return nil, fmt.Errorf("read %d bytes at byte %d: the device ends before", s.size, s.offset)
}

// inWords says what the block layer means by an error whose text is about something else: for a medium error of a disk it is ENODATA, "no data
// available".
func inWords(err error) error {
	if errors.Is(err, unix.ENODATA) {
		return fmt.Errorf("medium error (%w)", err)
	}
	return err
}

// hasPartitions reports whether a disk has an MBR partition table. LVM does not accept such a disk as a PV, even with an old
// label in the gap before its first partition (lvm2, lib/device/dev-type.c, _has_partition_table).
func hasPartitions(head []byte) bool {
	if binary.LittleEndian.Uint16(head[510:]) != 0xaa55 {
		return false
	}
	used := false
	for n := range 4 {
		p := head[446+16*n:]
		if p[0]&0x7f != 0 {
			return false // another kind of boot sector
		}
		used = used || binary.LittleEndian.Uint32(p[12:]) != 0
	}
	return used
}
