package luks

import "strconv"

// Options are what a StorageClass chooses for its mappings.
type Options struct {
	// Discards passes discards to the disk, which reveal what is free; without them a thin pool never gets space back.
	Discards bool
	// Without the kernel's work queues small reads are faster, and large writes slower (cryptsetup(8), --perf-no_read_workqueue).
	NoReadWorkqueue, NoWriteWorkqueue bool
}

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
		"--offset=" + strconv.FormatInt(int64(HeaderSize)/512, 10),
		"--luks2-metadata-size=" + strconv.Itoa(copySize), "--luks2-keyslots-size=" + strconv.Itoa(slotsSize),
		"--uuid=" + HeaderUUID(v.UUID), "--subsystem=" + subsystem, "--label=" + v.UUID,
	}, derivation(k)...)
	return append(args, v.Device)
}

func openArgs(v Volume, o Options) []string {
	args := []string{"open", "--type=luks2", fromStdin}
	for _, option := range []struct {
		is   bool
		word string
	}{
		{o.Discards, "--allow-discards"}, {o.NoReadWorkqueue, "--perf-no_read_workqueue"},
		{o.NoWriteWorkqueue, "--perf-no_write_workqueue"},
	} {
		if option.is {
			args = append(args, option.word)
		}
	}
	return append(args, v.Device, MappingName(v.Handle))
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
	return []string{"luksUUID", "--uuid=" + HeaderUUID(v.UUID), v.Device}
}

func resizeArgs(v Volume) []string {
	return []string{"resize", fromStdin, MappingName(v.Handle)}
}
