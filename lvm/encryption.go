package lvm

import (
	"context"
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
