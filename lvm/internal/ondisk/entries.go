package ondisk

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dirEntry is one entry of a directory.
type dirEntry struct {
	name  string
	inode uint64
}

// readEntries lists a directory with its entries' inodes, in four system calls unless it is very long.
func readEntries(dir string) ([]dirEntry, error) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var entries []dirEntry
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err != nil {
			return nil, &os.PathError{Op: "readdir", Path: dir, Err: err}
		}
		if n == 0 {
			return entries, nil
		}
		entries = appendEntries(entries, buf[:n])
	}
}

// appendEntries decodes the result of getdents64(2): inode, offset, length of the record, type, name.
func appendEntries(entries []dirEntry, p []byte) []dirEntry {
	const head = 19
	for len(p) > head {
		length := int(binary.NativeEndian.Uint16(p[16:]))
		if length <= head || length > len(p) {
			return entries
		}
		name, _, _ := bytes.Cut(p[head:length], []byte{0})
		if text := string(name); text != "." && text != ".." {
			entries = append(entries, dirEntry{text, binary.NativeEndian.Uint64(p)})
		}
		p = p[length:]
	}
	return entries
}

// readPartitions returns the size of each block device in /proc/partitions (proc(5)), in KiB, by its name in sysfs. The file is
// the same in every namespace.
func readPartitions(path string) (map[string]int64, error) {
	text, err := readSmall(path)
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] == "major" {
			continue
		}
		blocks, err := strconv.ParseInt(f[2], 10, 54)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		sizes[strings.ReplaceAll(f[3], "/", "!")] = blocks
	}
	return sizes, nil
}

// readSmall reads a whole kernel file, without the calls that package os makes to determine its type.
func readSmall(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var text []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return text, nil
		}
		text = append(text, buf[:n]...)
	}
}
