// Package luks encrypts a volume: LUKS2 on its logical volume, a dm-crypt mapping above it. It is used only for volumes of
// a StorageClass with `encryption: luks2`.
//
// # One volume
//
// Stage observes the logical volume, gets one step from plan, does it, and repeats this until plan returns StepNothing:
//
//	blank            -> write the format mark -> luksFormat -> open -> zero the places of superblocks -> remove the mark
//	LUKS2 of ours    -> open (rotate the key, resize)
//	anything else    -> an error, and nothing is changed
//
// plan.go, rotation.go, header.go, metadata.go, mark.go and args.go are pure; the files *_linux.go and cryptsetup.go
// act. A stage of a formatted volume starts one process (cryptsetup open), a first stage two; Unstage, Check, Erase and Recover
// start none.
//
// # Format
//
// The header has a constant size, lvm.LUKSHeaderSize, so the size of the logical volume follows from that of the claim and back
// (lvm.Class). cryptsetup overwrites any content. So the caller first proves that the device is blank, and the driver writes a mark
// of this logical volume into the future data area (mark.go). While the mark exists, the volume has never been in use, and every
// start formats it again, also on a node to which it moves. A new mapping decrypts to noise; the driver zeroes the places of superblocks, so that the mapping
// passes the same proof of blankness as a new logical volume. Last, another mark replaces the format mark. From then on no code
// path formats the volume: a header that is damaged, missing or without key slots is an error.
//
// # Keys
//
// A key reaches cryptsetup through a pipe on a file descriptor, never through arguments, the environment or a file. The Secret's
// field decides how a key slot is derived: "key" is random (256 bits or more), for which PBKDF2 with the least iterations
// suffices; "passphrase" gets argon2id with argonMemory. At most one argon2id runs at a time, so that the container's memory
// limit covers it; a cryptsetup whose disk does not answer loses its turn after maxTurn. The volume key stays in the kernel's
// keyring, so a resize needs the Secret too.
//
// Rotation: the Secret has the new key and, under "previousKey" or "previousPassphrase", the old one. The driver adds the new
// key, tests it, and then removes each key slot that the previous key opens, and no other. At every moment one of the two opens the
// volume.
//
// # Headers of others
//
// The driver reads both copies of the header itself before cryptsetup sees the device: 32 KiB, with a parser that knows no
// sizes but the driver's own. It refuses every field and value that the driver does not write, a key slot whose derivation costs more
// than maxPBKDF2 or argonMemory, tokens (they load libraries), and the UUID of another volume. cryptsetup alone would open a key slot
// with the cipher "cipher_null" with any key. A copy of an encrypted volume, also one that has moved here, has its
// origin's UUID and keys, and gets its own UUID before it is first opened. Tenants cannot access the header: it lies below the
// mapping.
//
// # Device-mapper
//
// cryptsetup runs with DM_DISABLE_UDEV: in a container with its own IPC namespace it would wait for udev forever. It runs without
// its locks, which need a writable /run. Instead the driver holds flock(2) on the logical volume, and cryptsetup inherits the
// lock, so that one which outlives the driver excludes the next driver. systemd-udevd does not probe a locked device. The name of
// a mapping derives from the volume handle alone, because NodeUnstageVolume has nothing else. A device node is always /dev/dm-N,
// with the number that device-mapper has for the name.
//
// A snapshot needs Suspend before lvcreate and resume after it: LVM suspends only its own device below the mapping.
//
// # Erasure
//
// Erase writes the erase mark, then overwrites both headers and all key slots, and reads them back. After that no key decrypts
// the data, unless a snapshot or a copy of the header exists. The mark tells an erased header from an interrupted
// format. Unless the volume is thin, a repeated erasure writes everything again: it may read another leg of a RAID than the one that
// missed the first.
package luks
