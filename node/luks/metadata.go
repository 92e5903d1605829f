package luks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nodelvm/nodelvm/lvm"
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
	hash      = "sha256"
	hashSize  = 32
	saltSize  = 32
	stripes   = 4000
	maxSlots  = 16
	slotSize  = (keyBits/8*stripes + 4095) / 4096 * 4096
	slotsSize = 4<<20 - headerBytes // room for maxSlots
)

// metadata has the values of the JSON area that the driver needs.
type metadata struct {
	sector int
	slots  []Slot
}

// parseMetadata parses a JSON area (LUKS2 On-Disk Format Specification, "LUKS2 JSON Metadata Format"). It accepts what formatArgs and addKeyArgs
// write, and refuses any other field or value, because whoever writes the disk can choose each: a key slot with another cipher, for example, opens
// with every key.
func parseMetadata(area []byte) (m metadata, err error) {
	o, err := parseObject(area)
	if err != nil {
		return m, err
	}
	if m.sector, err = checkSegment(o.object("segments")); err != nil {
		return m, err
	}
	if err := checkConfig(o.object("config")); err != nil {
		return m, err
	}
	if tokens, is := o["tokens"].(object); !is || len(tokens) > 0 {
		return m, errors.New("it has tokens, which the driver does not use: remove them with cryptsetup token remove")
	}
	bound, err := checkDigest(o.object("digests"))
	if err != nil {
		return m, err
	}
	if m.slots, err = parseSlots(o.object("keyslots"), bound); err != nil {
		return m, err
	}
	return m, o.checkFields("header", "keyslots", "tokens", "segments", "digests", "config")
}

func checkConfig(config object) error {
	switch {
	case config["requirements"] != nil:
		return errors.New("it needs features that the driver does not use (a conversion that was interrupted?)")
	case config["flags"] != nil:
		return errors.New("it has flags for each activation, which the driver does not use: remove them with cryptsetup refresh --persistent")
	case config.size("json_size") != copySize-binarySize:
		return fmt.Errorf("it states the metadata size %v instead of %d", config["json_size"], copySize-binarySize)
	case config.size("keyslots_size") != slotsSize:
		return fmt.Errorf("it states %v bytes of key slots instead of %d", config["keyslots_size"], slotsSize)
	}
	return config.checkFields("configuration", "json_size", "keyslots_size")
}

// checkSegment accepts the one segment that the driver writes, and returns its unit of encryption.
func checkSegment(segments object) (sector int, err error) {
	s := segments.object("0")
	sector = int(s.number("sector_size"))
	switch {
	case len(segments) != 1 || s.text("type") != "crypt":
		return 0, errors.New("its data are not one encrypted segment")
	case s.size("offset") != int64(lvm.LUKSHeaderSize):
		return 0, fmt.Errorf("its data begin at byte %v instead of %d", s["offset"], int64(lvm.LUKSHeaderSize))
	case s.text("size") != "dynamic" || s.size("iv_tweak") != 0:
		return 0, errors.New("its data are not all of the device")
	case s.text("encryption") != cipher:
		return 0, fmt.Errorf("its cipher is %q instead of %q", s.text("encryption"), cipher)
	case sector != 512 && sector != 4096:
		return 0, fmt.Errorf("its sector size is %v", s["sector_size"])
	}
	return sector, s.checkFields("segment", "type", "offset", "size", "iv_tweak", "encryption", "sector_size")
}

// checkDigest returns the numbers of the key slots that hold the volume key. A shorter digest would match a volume key by chance.
func checkDigest(digests object) (bound []string, err error) {
	d := digests.object("0")
	switch {
	case len(digests) != 1:
		return nil, fmt.Errorf("it has %d digests of the volume key instead of one", len(digests))
	case d.text("type") != "pbkdf2":
		return nil, fmt.Errorf("its digest of the volume key has the type %q instead of pbkdf2", d.text("type"))
	case d.text("hash") != hash:
		return nil, fmt.Errorf("its digest of the volume key has the hash %q instead of %s", d.text("hash"), hash)
	case d.number("iterations") < leastPBKDF2 || d.number("iterations") > maxPBKDF2:
		return nil, fmt.Errorf("its digest asks for %v iterations, not %d to %d", d["iterations"], leastPBKDF2, maxPBKDF2)
	case !d.isBytes("salt", saltSize) || !d.isBytes("digest", hashSize):
		return nil, fmt.Errorf("its digest of the volume key has not %d bytes with a salt of %d", hashSize, saltSize)
	case !slices.Equal(d.texts("segments"), []string{"0"}):
		return nil, errors.New("its digest is not that of the data's volume key")
	}
	return d.texts("keyslots"), d.checkFields("digest", "type", "keyslots", "segments", "hash", "iterations", "salt", "digest")
}

func parseSlots(keyslots object, bound []string) (slots []Slot, err error) {
	if len(keyslots) > maxSlots {
		return nil, fmt.Errorf("it has %d key slots", len(keyslots))
	}
	for name := range keyslots {
		number, err := strconv.Atoi(name)
		if err != nil || number < 0 || number >= maxSlots || strconv.Itoa(number) != name {
			return nil, fmt.Errorf("it has a key slot %q", name)
		}
		s := Slot{Number: number, Bound: slices.Contains(bound, name)}
		if err := s.parse(keyslots.object(name)); err != nil {
			return nil, fmt.Errorf("key slot %d: %w", number, err)
		}
		slots = append(slots, s)
	}
	slices.SortFunc(slots, func(a, b Slot) int { return cmp.Compare(a.Number, b.Number) })
	return slots, nil
}

func (s *Slot) parse(o object) error {
	area, split, kdf := o.object("area"), o.object("af"), o.object("kdf")
	s.Ignored = o.number("priority") == 0
	s.Function = kdf.text("type")
	switch {
	case o.text("type") != "luks2" || area.text("type") != "raw" || split.text("type") != "luks1" || split.number("stripes") != stripes:
		return errors.New("it is of a type that the driver does not write")
	case split.text("hash") != hash:
		return fmt.Errorf("its key is spread with the hash %q instead of %s", split.text("hash"), hash)
	case o.number("key_size") != keyBits/8 || area.number("key_size") != keyBits/8:
		return fmt.Errorf("its key has %v bytes, and the key of its area %v, instead of %d", o["key_size"], area["key_size"], keyBits/8)
	case area.text("encryption") != cipher:
		return fmt.Errorf("its area has the cipher %q instead of %q", area.text("encryption"), cipher)
	}
	if err := checkArea(area); err != nil {
		return err
	}
	if !s.Ignored { // else its cost does not matter: the driver does not try it
		if err := checkCost(kdf); err != nil {
			return err
		}
	}
	return s.checkFields(o)
}

// checkArea accepts the places that cryptsetup gives to keys of this size, one after the other.
func checkArea(area object) error {
	offset, size := area.size("offset"), area.size("size")
	if size != slotSize || offset < headerBytes || offset > headerBytes+slotsSize-slotSize || (offset-headerBytes)%slotSize != 0 {
		return fmt.Errorf("its area, %v bytes at byte %v, is outside of the header, or not one that the driver writes", area["size"], area["offset"])
	}
	return nil
}

// checkFields refuses fields of a slot that the driver does not write.
func (s *Slot) checkFields(o object) error {
	kdf := o.object("kdf")
	derivation := []string{"type", "hash", "iterations", "salt"}
	if s.Function != "pbkdf2" {
		derivation = []string{"type", "time", "memory", "cpus", "salt"}
	}
	if !kdf.isBytes("salt", saltSize) {
		return fmt.Errorf("its key derivation has not a salt of %d bytes", saltSize)
	}
	return cmp.Or(
		o.checkFields("key slot", "type", "key_size", "priority", "af", "area", "kdf"),
		o.object("af").checkFields("splitter", "type", "stripes", "hash"),
		o.object("area").checkFields("area", "type", "offset", "size", "encryption", "key_size"),
		kdf.checkFields("key derivation", derivation...))
}

// checkCost refuses a derivation that would keep the driver busy for long, or use up its memory.
func checkCost(kdf object) error {
	const advice = "change it with cryptsetup luksConvertKey, or exclude the slot with cryptsetup config --priority ignore"
	switch function := kdf.text("type"); function {
	case "pbkdf2":
		if kdf.text("hash") != hash {
			return fmt.Errorf("its PBKDF2 has the hash %q instead of %s: %s", kdf.text("hash"), hash, advice)
		}
		if n := kdf.number("iterations"); n < leastPBKDF2 || n > maxPBKDF2 {
			return fmt.Errorf("its PBKDF2 has %v iterations, not %d to %d: %s", kdf["iterations"], leastPBKDF2, maxPBKDF2, advice)
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
