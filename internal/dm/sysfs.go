package dm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Entry is one entry of a directory.
type Entry struct {
	Name  string
	Inode uint64
}

// ReadEntries lists a directory with its entries' inodes, in four system calls unless it is very long.
func ReadEntries(dir string) (entries []Entry, err error) {
	err = readWhole(dir, unix.O_DIRECTORY, unix.ReadDirent, func(p []byte) { entries = appendEntries(entries, p) })
	return entries, err
}

// ReadSmall reads a whole kernel file, without the calls that package os makes to determine its type.
func ReadSmall(path string) (text []byte, err error) {
	err = readWhole(path, 0, unix.Read, func(p []byte) { text = append(text, p...) })
	return text, err
}

// readBuffers spares the garbage collector 32 KiB for each file: a request to the driver reads a dozen.
var readBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// readWhole opens a file, and calls add with what each read returns, until the end.
func readWhole(path string, flags int, read func(fd int, p []byte) (int, error), add func([]byte)) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	buf, _ := readBuffers.Get().(*[32 << 10]byte)
	defer readBuffers.Put(buf)
	for {
		n, err := read(fd, buf[:])
		if err != nil {
			return &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return nil
		}
		add(buf[:n])
	}
}

// appendEntries decodes the result of getdents64(2): inode, offset, length of the record, type, name.
func appendEntries(entries []Entry, p []byte) []Entry {
	const head = 19
	for len(p) > head {
		length := int(binary.NativeEndian.Uint16(p[16:]))
		if length <= head || length > len(p) {
			return entries
		}
		name, _, _ := bytes.Cut(p[head:length], []byte{0})
		if text := string(name); text != "." && text != ".." {
			entries = append(entries, Entry{text, binary.NativeEndian.Uint64(p)})
		}
		p = p[length:]
	}
	return entries
}

// ReadNames lists the names in a directory.
func ReadNames(dir string) ([]string, error) {
	entries, err := ReadEntries(dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names, err
}

// Attribute reads a small file of a block device below a sysfs, "dm/uuid", without the white space around it. It needs three system
// calls, where os.ReadFile needs six: a node can have a thousand volumes with several files each.
func Attribute(sys, name, file string) (string, error) {
	path := filepath.Join(sys, "class/block", name, file)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var b [1024]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return "", &os.PathError{Op: "read", Path: path, Err: err}
	}
	return strings.TrimSpace(string(b[:n])), nil
}

// IsVanished reports whether an error of sysfs means that a device is removed or being removed: device-mapper returns EINVAL
// during the removal.
func IsVanished(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EINVAL)
}
