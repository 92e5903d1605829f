package lvm

import (
	"context"
	"math"
)

// Encryption is how a volume's data is encrypted on the logical volume.
type Encryption string

const (
	EncryptionNone  Encryption = ""
	EncryptionLUKS2 Encryption = "luks2" // a LUKS2 header, then the data
)

// Fields of an encrypted volume's Secret, without those of a rotation.
const (
	SecretKey        = "key"
	SecretPassphrase = "passphrase"
)

// Description describes it for messages.
func (e Encryption) Description() string {
	if e == EncryptionNone {
		return "not encrypted"
	}
	return "encrypted (" + string(e) + ")"
}

// LUKSHeaderSize is the offset of the data on an encrypted logical volume. It must never change: the sizes of existing volumes
// depend on it.
const LUKSHeaderSize = 16 * MiB

// LUKSMinDataSize is the least size of an encrypted volume: it has space for the places of superblocks and, between them, a mark of
// the driver.
const LUKSMinDataSize = 4 * MiB

// DeviceSize returns the least size of the logical volume for a volume of a size: with the header if the class is encrypted. It
// does not overflow for any size.
func (class Class) DeviceSize(volume Bytes) Bytes {
	if class.Encryption == EncryptionNone {
		return volume
	}
	return min(max(volume, LUKSMinDataSize), math.MaxInt64-LUKSHeaderSize) + LUKSHeaderSize
}

// DataSize returns the size of a volume of the class on a logical volume of a size; 0 if that is too small for encryption.
func (class Class) DataSize(device Bytes) Bytes {
	switch {
	case class.Encryption == EncryptionNone:
		return device
	case device < LUKSHeaderSize+LUKSMinDataSize:
		return 0
	}
	return device - LUKSHeaderSize
}

// MaxDeviceSize returns the largest size of the logical volume for a volume with a limit.
func (class Class) MaxDeviceSize(limit Bytes) Bytes {
	if class.Encryption == EncryptionNone {
		return limit
	}
	return min(limit, math.MaxInt64-LUKSHeaderSize) + LUKSHeaderSize
}

// DeviceSize returns the size of the volume's logical volume.
func (v Volume) DeviceSize() Bytes { return v.Class.DeviceSize(v.Size) }

// Encryptor is what a Host needs to change encrypted volumes, which it identifies by their handles. Every error has a Kind.
type Encryptor interface {
	// Mapping returns the device of an open volume.
	Mapping(handle string) (device string, number uint64, open bool, err error)
	// Unstage closes a volume. KindInUse: something uses it.
	Unstage(ctx context.Context, handle string) error
	// Suspend freezes the file system on an open volume and stops its I/O until resume is called. An error of resume with KindBusy:
	// the volume was resumed before, and is not suspended.
	Suspend(handle string) (resume func() error, err error)
	// Erase destroys the key slots on the logical volume's device: no key decrypts the data after that. A repeated call continues
	// where an interrupted one ended. While Erase has the device open, it calls check, which fails if the device is no longer the
	// volume's.
	Erase(ctx context.Context, v Volume, device string, check func() error) error
}
