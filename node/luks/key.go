package luks

import (
	"bytes"
	"log/slog"

	"github.com/nodelvm/nodelvm/lvm"
)

// Fields of the Secret.
const (
	FieldKey                = lvm.SecretKey        // random text, at least MinKey bytes: gRPC passes UTF-8 alone
	FieldPassphrase         = lvm.SecretPassphrase // anything else
	FieldPreviousKey        = "previousKey"
	FieldPreviousPassphrase = "previousPassphrase"
)

// Limits of a key's length, in bytes. A pipe holds maxKey without a reader.
const (
	MinKey        = 32
	MinPassphrase = 8
	maxKey        = 4096
)

// Key opens a volume. It never prints its secret.
type Key struct {
	secret []byte
	random bool // 256 bits or more: no attacker can guess it, even with a cheap derivation
}

func (Key) String() string               { return "[key]" }
func (Key) GoString() string             { return "[key]" }
func (Key) LogValue() slog.Value         { return slog.StringValue("[key]") }
func (Key) MarshalText() ([]byte, error) { return []byte("[key]"), nil }

func (k *Key) equal(other *Key) bool { return bytes.Equal(k.secret, other.secret) }

// Keys are the keys in a Secret.
type Keys struct {
	Current  *Key
	Previous *Key // of a rotation; nil: none
}

// ParseSecret parses the Secret of a request (lvm.KindInvalid). It uses all bytes of a field: a newline at the end is part of the
// key. Its errors name only the fields that the driver reads, because the Secret can be another program's.
func ParseSecret(secret map[string]string) (Keys, error) {
	var keys Keys
	var err error
	if keys.Current, err = parseKey(secret, FieldKey, FieldPassphrase); err != nil {
		return Keys{}, err
	}
	if keys.Current == nil {
		return Keys{}, lvm.Errorf(lvm.KindInvalid, "the volume is encrypted, and the request has no key: the Secret that the StorageClass names needs a field %q with random text of %d bytes or more, or a field %q",
			FieldKey, MinKey, FieldPassphrase)
	}
	if keys.Previous, err = parseKey(secret, FieldPreviousKey, FieldPreviousPassphrase); err != nil {
		return Keys{}, err
	}
	if keys.Previous != nil && keys.Previous.equal(keys.Current) {
		keys.Previous = nil
	}
	return keys, nil
}

func parseKey(secret map[string]string, randomField, passphraseField string) (*Key, error) {
	random, passphrase := secret[randomField], secret[passphraseField]
	field, value, least := randomField, random, MinKey
	switch {
	case random == "" && passphrase == "":
		return nil, nil
	case random != "" && passphrase != "":
		return nil, lvm.Errorf(lvm.KindInvalid, "the Secret has both %q and %q: keep one of them", randomField, passphraseField)
	case random == "":
		field, value, least = passphraseField, passphrase, MinPassphrase
	}
	switch {
	case len(value) < least:
		return nil, lvm.Errorf(lvm.KindInvalid, "the field %q of the Secret has %d bytes, and needs at least %d", field, len(value), least)
	case len(value) > maxKey:
		return nil, lvm.Errorf(lvm.KindInvalid, "the field %q of the Secret has %d bytes, and at most %d are allowed", field, len(value), maxKey)
	case random != "" && distinct(value) < leastDistinct:
		return nil, lvm.Errorf(lvm.KindInvalid, "the field %q of the Secret has only %d different bytes, so it is not random: create one with `head -c 32 /dev/urandom | base64`, or use the field %q",
			field, distinct(value), passphraseField)
	}
	return &Key{secret: []byte(value), random: random != ""}, nil
}

// leastDistinct is the least number of distinct bytes in a random key. Of ten thousand random keys of 32 hexadecimal digits, about
// one has fewer.
const leastDistinct = 8

func distinct(value string) int {
	seen := map[byte]bool{}
	for i := range len(value) {
		seen[value[i]] = true
	}
	return len(seen)
}
