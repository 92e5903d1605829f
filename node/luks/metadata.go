package luks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// Slot is a key slot.
type Slot struct {
	Number   int
	Bound    bool   // to the volume key; an unbound slot is left by an interrupted command
	Ignored  bool   // opened only by its number (cryptsetup config --priority ignore)
	Function string // derivation: pbkdf2, argon2i or argon2id
}

// The costs of a derivation that the driver formats with, and the highest that it accepts in a header: with a wrong key, cryptsetup
// pays them for every slot. argon2 needs its memory in the driver's own container.
const (
	leastPBKDF2 = 1000 // cryptsetup's minimum
	maxPBKDF2   = 4_000_000

	argonMemory = 64 << 10 // KiB
	argonTime   = 4        // passes; cryptsetup's minimum
	argonLanes  = 4
	maxTime     = 16
)

const (
	cipher    = "aes-xts-plain64"
	keyBits   = 512 // two AES-256 keys
	stripes   = 4000
	maxSlots  = 16
	slotsSize = 4<<20 - headerBytes // room for maxSlots
)

// metadata has the values of the JSON area that the driver needs.
type metadata struct {
	sector int
	slots  []Slot
}

// parseMetadata parses a JSON area (LUKS2 On-Disk Format Specification, "LUKS2 JSON Metadata Format"), and refuses one with
// features or costs that this driver does not write.
func parseMetadata(area []byte) (m metadata, err error) {
	o, err := parseObject(area)
	if err != nil {
		return m, err
	}
	if m.sector, err = checkSegment(o.object("segments")); err != nil {
		return m, err
	}
	config := o.object("config")
	room := config.number("keyslots_size")
	switch {
	case config.number("json_size") != copySize-binarySize:
		return m, fmt.Errorf("it states the metadata size %v instead of %d", config["json_size"], copySize-binarySize)
	case room < 0 || room > int64(HeaderSize)-headerBytes:
		return m, errors.New("its key slots overlap the data")
	case config["requirements"] != nil:
		return m, errors.New("it needs features that the driver does not use (a conversion that was interrupted?)")
	case len(o.object("tokens")) > 0:
		return m, errors.New("it has tokens, which the driver does not use: remove them with cryptsetup token remove")
	}
	bound, err := checkDigest(o.object("digests"))
	if err != nil {
		return m, err
	}
	m.slots, err = parseSlots(o.object("keyslots"), bound, headerBytes+room)
	return m, err
}

// checkSegment accepts the one segment that the driver writes, and returns its unit of encryption.
func checkSegment(segments object) (sector int, err error) {
	s := segments.object("0")
	sector = int(s.number("sector_size"))
	switch {
	case len(segments) != 1 || s.text("type") != "crypt" || s["integrity"] != nil || s["flags"] != nil:
		return 0, errors.New("its data are not one encrypted segment")
	case s.number("offset") != int64(HeaderSize):
		return 0, fmt.Errorf("its data begin at byte %v instead of %d", s["offset"], int64(HeaderSize))
	case s.text("size") != "dynamic" || s.number("iv_tweak") != 0:
		return 0, errors.New("its data are not all of the device")
	case s.text("encryption") != cipher:
		return 0, fmt.Errorf("its cipher is %q instead of %q", s.text("encryption"), cipher)
	case sector != 512 && sector != 4096:
		return 0, fmt.Errorf("its sector size is %v", s["sector_size"])
	}
	return sector, nil
}

// checkDigest returns the numbers of the key slots that hold the volume key.
func checkDigest(digests object) (bound []string, err error) {
	d := digests.object("0")
	switch {
	case len(digests) != 1:
		return nil, fmt.Errorf("it has %d digests of the volume key instead of one", len(digests))
	case d.text("type") != "pbkdf2":
		return nil, fmt.Errorf("its digest of the volume key has the type %q instead of pbkdf2", d.text("type"))
	case d.number("iterations") < 1 || d.number("iterations") > maxPBKDF2:
		return nil, fmt.Errorf("its digest asks for %v iterations, more than %d", d["iterations"], maxPBKDF2)
	}
	for _, slot := range d.list("keyslots") {
		number, _ := slot.(string)
		bound = append(bound, number)
	}
	return bound, nil
}

func parseSlots(keyslots object, bound []string, end int64) (slots []Slot, err error) {
	if len(keyslots) > maxSlots {
		return nil, fmt.Errorf("it has %d key slots", len(keyslots))
	}
	for name := range keyslots {
		number, err := strconv.Atoi(name)
		if err != nil || number < 0 || number >= maxSlots || strconv.Itoa(number) != name {
			return nil, fmt.Errorf("it has a key slot %q", name)
		}
		s := Slot{Number: number, Bound: slices.Contains(bound, name)}
		if err := s.parse(keyslots.object(name), end); err != nil {
			return nil, fmt.Errorf("key slot %d: %w", number, err)
		}
		slots = append(slots, s)
	}
	slices.SortFunc(slots, func(a, b Slot) int { return cmp.Compare(a.Number, b.Number) })
	return slots, nil
}

func (s *Slot) parse(o object, end int64) error {
	area, split, kdf := o.object("area"), o.object("af"), o.object("kdf")
	offset, size := area.number("offset"), area.number("size")
	s.Ignored = o.number("priority") == 0
	s.Function = kdf.text("type")
	switch {
	case o.text("type") != "luks2" || area.text("type") != "raw" || split.text("type") != "luks1" || split.number("stripes") != stripes:
		return errors.New("it is of a type that the driver does not write")
	case o.number("key_size") != keyBits/8:
		return fmt.Errorf("its key has %v bytes", o["key_size"])
	case offset < headerBytes || size < 0 || size > end || offset > end-size:
		return fmt.Errorf("its area, %v bytes at byte %v, is outside of the header", area["size"], area["offset"])
	case s.Ignored: // its cost does not matter: the driver does not try it
		return nil
	}
	return checkCost(kdf)
}

// checkCost refuses a derivation that would keep the driver busy for long, or use up its memory.
func checkCost(kdf object) error {
	const advice = "change it with cryptsetup luksConvertKey, or exclude the slot with cryptsetup config --priority ignore"
	switch function := kdf.text("type"); function {
	case "pbkdf2":
		if n := kdf.number("iterations"); n < 1 || n > maxPBKDF2 {
			return fmt.Errorf("its PBKDF2 has %v iterations, more than %d: %s", kdf["iterations"], maxPBKDF2, advice)
		}
	case "argon2i", "argon2id":
		memory, passes, lanes := kdf.number("memory"), kdf.number("time"), kdf.number("cpus")
		if memory < 1 || memory > argonMemory || passes < 1 || passes > maxTime || lanes < 1 || lanes > argonLanes {
			return fmt.Errorf("its %s asks for %v KiB of memory, %v passes and %v threads, more than %d KiB, %d and %d: %s",
				function, kdf["memory"], kdf["time"], kdf["cpus"], argonMemory, maxTime, argonLanes, advice)
		}
	default:
		return fmt.Errorf("its key derivation is %q", function)
	}
	return nil
}

// usable returns the key slots that the driver tries.
func usable(slots []Slot) []Slot {
	var list []Slot
	for _, s := range slots {
		if s.Bound && !s.Ignored {
			list = append(list, s)
		}
	}
	return list
}
