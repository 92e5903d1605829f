package luks

import (
	"strconv"

	"github.com/nodelvm/nodelvm/lvm"
)

// common has --disable-locks because the driver has its own lock, and /run can be read-only. cryptsetup must load no token library.
var common = []string{"--disable-locks", "--disable-external-tokens", "--batch-mode"}

// The first key is on standard input, a second one on this descriptor.
const (
	fromStdin   = "--key-file=-"
	secondKeyFD = 4
)

// derivation returns the options of a new key slot. The costs are constant: by default cryptsetup measures the machine for seconds,
// and uses up to 1 GiB.
func derivation(k *Key) []string {
	if k.random {
		return []string{"--pbkdf=pbkdf2", "--hash=" + hash, "--pbkdf-force-iterations=" + strconv.Itoa(leastPBKDF2)}
	}
	return []string{"--pbkdf=argon2id", "--pbkdf-memory=" + strconv.Itoa(argonMemory), "--pbkdf-force-iterations=" + strconv.Itoa(argonTime),
		"--pbkdf-parallel=" + strconv.Itoa(argonLanes)}
}

func formatArgs(v Volume, k *Key, sector int) []string {
	args := append([]string{"luksFormat", "--type=luks2", fromStdin,
		"--cipher=" + cipher, "--key-size=" + strconv.Itoa(keyBits), "--sector-size=" + strconv.Itoa(sector),
		"--offset=" + strconv.FormatInt(int64(lvm.LUKSHeaderSize)/512, 10),
		"--luks2-metadata-size=" + strconv.Itoa(copySize), "--luks2-keyslots-size=" + strconv.Itoa(slotsSize),
		"--uuid=" + v.headerUUID, "--subsystem=" + subsystem, "--label=" + v.UUID,
	}, derivation(k)...)
	return append(args, v.Device)
}

// openArgs passes discards to the disk only if a class asks for that: they reveal what is free. Without them a thin pool never gets space back.
func openArgs(v Volume, discards, readOnly bool) []string {
	args := []string{"open", "--type=luks2", fromStdin}
	if readOnly {
		args = append(args, "--readonly")
	}
	if discards {
		args = append(args, "--allow-discards")
	}
	return append(args, v.Device, v.name)
}

func testArgs(v Volume, slot int) []string {
	return []string{"open", "--type=luks2", "--test-passphrase", "--key-slot=" + strconv.Itoa(slot), fromStdin, v.Device}
}

func addKeyArgs(v Volume, k *Key) []string {
	args := append([]string{"luksAddKey", fromStdin}, derivation(k)...)
	return append(args, v.Device, "/proc/self/fd/"+strconv.Itoa(secondKeyFD))
}

// removeSlotArgs returns arguments for luksKillSlot. It needs a key that opens another slot, on standard input.
func removeSlotArgs(v Volume, slot int) []string {
	return []string{"luksKillSlot", fromStdin, v.Device, strconv.Itoa(slot)}
}

func setUUIDArgs(v Volume) []string {
	return []string{"luksUUID", "--uuid=" + v.headerUUID, v.Device}
}

func resizeArgs(v Volume) []string {
	return []string{"resize", fromStdin, v.name}
}

// sectorSize returns the unit of encryption. A larger one is faster, but becomes the logical sector of the mapping. The content
// of a raw block volume (partition tables, disk images) depends on the logical sector, so such a volume keeps that of the logical
// volume.
func sectorSize(block bool, logical int) int {
	if block && logical == 512 {
		return 512
	}
	return 4096
}
