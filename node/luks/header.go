package luks

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
)

// HeaderState is the state of the area of a LUKS header.
type HeaderState int

const (
	HeaderNone    HeaderState = iota // No sign of LUKS.
	HeaderValid                      // LUKS2 with no field or value but those that this driver writes, with at least one key slot.
	HeaderNoKeys                     // Like HeaderValid, but without a key slot: after luksErase, or an interrupted luksFormat.
	HeaderDamaged                    // No copy is whole.
	HeaderForeign                    // LUKS that this driver does not write.
)

// Header is a volume's LUKS2 header.
type Header struct {
	State   HeaderState
	Reason  string // of HeaderForeign and HeaderDamaged
	UUID    string
	Sector  int // unit of encryption, in bytes
	Slots   []Slot
	Copies  int    // number of intact copies, of two
	Remains bool   // HeaderNone: a header of this driver without its signature, as a killed luksFormat can leave it
	version uint64 // of the current copy: cryptsetup numbers its writes
}

// The LUKS2 binary header (LUKS2 On-Disk Format Specification, "Binary Header"), and the sizes that the driver formats with.
const (
	copySize     = 16 << 10 // of one copy: binary header and JSON area
	binarySize   = 4 << 10
	headerBytes  = 2 * copySize
	magicFirst   = "LUKS\xba\xbe"
	magicSecond  = "SKUL\xba\xbe"
	atVersion    = 6
	atSize       = 8
	atSequence   = 16
	atAlgorithm  = 72
	atUUID       = 168
	atSubsystem  = 208
	atOffset     = 256
	atPadding    = 264
	atChecksum   = 448
	checksumArea = 64
	luks2        = 2
)

// subsystem is in every header that this driver writes.
const subsystem = "nodelvm"

// ParseHeader parses the first headerBytes of a device. No value in the header makes it read beyond them.
func ParseHeader(data []byte) Header {
	if len(data) < headerBytes {
		return Header{State: HeaderDamaged, Reason: fmt.Sprintf("the device has %d bytes", len(data))}
	}
	first, second := data[:copySize], data[copySize:headerBytes]
	if !bytes.HasPrefix(first, []byte(magicFirst)) && !bytes.HasPrefix(second, []byte(magicSecond)) {
		return Header{Remains: isRemains(first) || isRemains(second)}
	}
	if bytes.HasPrefix(first, []byte(magicFirst)) {
		if version := binary.BigEndian.Uint16(first[atVersion:]); version != luks2 {
			return Header{State: HeaderForeign, Reason: fmt.Sprintf("its header is of LUKS version %d", version)}
		}
	}
	var best Header
	for at, magic := range []string{magicFirst, magicSecond} {
		h, whole := parseCopy(data[at*copySize:(at+1)*copySize], magic, uint64(at*copySize))
		switch {
		case whole && h.State == HeaderForeign:
			return h // cryptsetup could take this copy
		case whole && (best.Copies == 0 || h.version > best.version):
			h.Copies += best.Copies
			best = h
		case whole:
			best.Copies++
		case best.Reason == "":
			best.Reason = h.Reason
		}
	}
	if best.Copies == 0 {
		best.State = HeaderDamaged
	}
	return best
}

// isRemains reports whether the field of the subsystem has this driver's, and the binary header is zero after it.
func isRemains(data []byte) bool {
	return text(data[atSubsystem:], 48) == subsystem && isZero(data[atChecksum+checksumArea:binarySize])
}

func isZero(data []byte) bool { return len(bytes.Trim(data, "\x00")) == 0 }

// parseCopy parses one copy; whole is false if its checksum is wrong.
func parseCopy(data []byte, magic string, offset uint64) (h Header, whole bool) {
	foreign := func(reason string, args ...any) (Header, bool) {
		return Header{State: HeaderForeign, Reason: fmt.Sprintf(reason, args...)}, true
	}
	switch size := binary.BigEndian.Uint64(data[atSize:]); {
	case !bytes.HasPrefix(data, []byte(magic)):
		return Header{Reason: "a copy of the header has no LUKS signature"}, false
	case binary.BigEndian.Uint16(data[atVersion:]) != luks2:
		return Header{Reason: "the copies of the header have different LUKS versions"}, false
	case size != copySize: // its checksum covers more than the driver reads
		return foreign("its metadata area has %d bytes, and the driver's has %d", size, copySize)
	case text(data[atAlgorithm:], 32) != "sha256":
		return foreign("its checksum is %q, and the driver's is sha256", text(data[atAlgorithm:], 32))
	case !checksumHolds(data):
		return Header{Reason: "a checksum of the header is wrong"}, false
	case binary.BigEndian.Uint64(data[atOffset:]) != offset:
		return foreign("a copy of its header belongs to byte %d", binary.BigEndian.Uint64(data[atOffset:]))
	case !isZero(data[atPadding:atChecksum]) || !isZero(data[atChecksum+sha256.Size:binarySize]):
		return foreign("it has data where the driver's has none")
	case text(data[atSubsystem:], 48) != subsystem:
		return foreign("its subsystem is %q instead of %q", text(data[atSubsystem:], 48), subsystem)
	}
	m, err := parseMetadata(data[binarySize:])
	if err != nil {
		return foreign("%v", err)
	}
	h = Header{State: HeaderValid, UUID: text(data[atUUID:], 40), Sector: m.sector, Slots: m.slots, Copies: 1, version: binary.BigEndian.Uint64(data[atSequence:])}
	if len(usable(h.Slots)) == 0 {
		h.State = HeaderNoKeys
	}
	return h, true
}

func checksumHolds(data []byte) bool {
	sum := sha256.New()
	sum.Write(data[:atChecksum])
	sum.Write(make([]byte, checksumArea))
	sum.Write(data[atChecksum+checksumArea:])
	return subtle.ConstantTimeCompare(sum.Sum(nil), data[atChecksum:atChecksum+sha256.Size]) == 1
}

// text returns the NUL-terminated string in a field.
func text(field []byte, size int) string {
	before, _, _ := bytes.Cut(field[:size], []byte{0})
	return string(before)
}
