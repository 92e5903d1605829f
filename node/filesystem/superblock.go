package filesystem

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
)

// superblocks has the offset of each file system's superblock; headSize bytes from there include all needed fields.
var superblocks = map[string]int64{"ext4": 1024, "xfs": 0, "btrfs": 64 << 10}

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

// Detect returns the type of the file system on a device, if this driver supports it, and "" otherwise. "" is no
// proof that the device is blank.
func Detect(device string) (fsType string, err error) {
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

// readSuperblocks reads all places of a device that can have a superblock. It ignores their content, and returns the first read error.
func readSuperblocks(device io.ReaderAt, size lvm.Bytes) error {
	var data []byte
	for _, span := range dm.SuperblockSpans(size) {
		data = slices.Grow(data[:0], int(span.Length))[:span.Length]
		if _, err := device.ReadAt(data, int64(span.At)); err != nil {
			return fmt.Errorf("at byte %d: %w", int64(span.At), err)
		}
	}
	return nil
}

// headSize is the number of bytes that lvcreate zeroes at the beginning of a new volume (lvcreate(8), --zero).
const headSize = 4096

// readSuperblock reads the superblock of a type of file system from a device, past the mount, and returns the device's size too.
func readSuperblock(device, fsType string) (super []byte, size lvm.Bytes, err error) {
	f, size, err := open(device)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }()
	super, err = readHeadSize(f, superblocks[fsType])
	return super, size, err
}

// readHeadSize reads headSize bytes.
func readHeadSize(device *os.File, at int64) ([]byte, error) {
	data := make([]byte, headSize)
	if _, err := device.ReadAt(data, at); err != nil {
		return nil, fmt.Errorf("cannot read the content of %s: %w", device.Name(), err)
	}
	return data, nil
}

// open opens a device for reading, and returns its size.
func open(device string) (*os.File, lvm.Bytes, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, 0, fmt.Errorf("cannot read the content of %s: %w", device, err)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		_ = f.Close()
		return nil, 0, fmt.Errorf("cannot read the size of %s: %w", device, err)
	}
	return f, lvm.Bytes(size), nil
}
