package node

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// magics identify each file system by bytes at an offset of its device, as in the kernel's headers.
var magics = []struct {
	fsType string
	offset int64
	magic  []byte
}{
	{"ext4", 1024 + 0x38, []byte{0x53, 0xef}},
	{"xfs", 0, []byte("XFSB")},
	{"btrfs", 64<<10 + 0x40, []byte("_BHRfS_M")},
}

// DetectFileSystem returns the type of the file system on a device, if this driver supports it, and "" otherwise. "" is no
// proof that the device is blank.
func DetectFileSystem(device string) (fsType string, err error) {
	f, err := os.Open(device)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, m := range magics {
		found := make([]byte, len(m.magic))
		if _, err := f.ReadAt(found, m.offset); err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if bytes.Equal(found, m.magic) {
			return m.fsType, nil
		}
	}
	return "", nil
}
