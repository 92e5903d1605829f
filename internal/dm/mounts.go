package dm

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MountTable is the table of the mounts that this process sees.
const MountTable = "/proc/self/mountinfo"

// Mount is a mount (proc_pid_mountinfo(5)).
type Mount struct {
	ID           int
	Number       uint64 // Of the file system's device. It is anonymous for a btrfs, and for a file system without a device.
	Root         string // The part of the file system that is mounted, "/" for all of it; "/dm-3" for a device node that is bound.
	Point        string // Where it is mounted.
	Options      string // Of the mount, "rw,noatime".
	Type         string // Of the file system.
	Source       string
	SuperOptions string // Of the file system.
	Propagation  string // The optional fields: "shared:1 master:2".
}

// ReadMounts returns the mounts in a table, in its order: of two at one point, the last is on top. It leaves out lines that it cannot
// parse: an overlay of many directories, or a program's source, must not hide all other mounts.
func ReadMounts(table string) ([]Mount, error) {
	text, err := readMountTable(table, showsAllMounts())
	if err != nil {
		return nil, err
	}
	var mounts []Mount
	for line := range strings.Lines(string(text)) {
		if m, is := parseMount(strings.TrimSuffix(line, "\n")); is {
			mounts = append(mounts, m)
		}
	}
	return mounts, nil
}

// parseMount parses a line. An empty source is an empty field.
func parseMount(line string) (m Mount, is bool) {
	before, after, _ := strings.Cut(line, " - ")
	of, origin := strings.Split(before, " "), strings.Split(after, " ")
	if len(of) < 6 || len(origin) < 2 {
		return m, false
	}
	id, err := strconv.Atoi(of[0])
	major, minor, _ := strings.Cut(of[2], ":")
	high, majorErr := strconv.ParseUint(major, 10, 32)
	low, minorErr := strconv.ParseUint(minor, 10, 32)
	if errors.Join(err, majorErr, minorErr) != nil {
		return m, false
	}
	m = Mount{ID: id, Number: unix.Mkdev(uint32(high), uint32(low)), Root: unescapeMount(of[3]), Point: unescapeMount(of[4]), Options: of[5],
		Propagation: strings.Join(of[6:], " "), Type: unescapeMount(origin[0]), Source: unescapeMount(origin[1])}
	if len(origin) > 2 {
		m.SuperOptions = origin[2]
	}
	return m, true
}

// Device returns the number of the block device with the mounted file system; 0: none.
func (m Mount) Device() uint64 {
	if unix.Major(m.Number) != 0 {
		return m.Number
	}
	if m.namesDevice() {
		return NumberAt(m.Source)
	}
	return 0
}

// namesDevice reports whether the kernel has opened the mount's source as a block device, although the file system's number is anonymous. The
// source of any other file system without a device is a text of whoever mounts it: a tenant could name another one's volume.
func (m Mount) namesDevice() bool { return m.Type == "btrfs" || m.Type == "bcachefs" }

// MayBindNode reports whether the mount may show a single device node: it is a part of a file system that holds device nodes. The kubelet
// and NodePublishVolume bind raw block volumes so. Such a mount does not keep the device open.
func (m Mount) MayBindNode() bool {
	return m.Root != "/" && (m.Type == "devtmpfs" || m.Type == "tmpfs")
}

// readMountTable reads a table that may lack lines until two readings agree.
func readMountTable(path string, whole bool) ([]byte, error) {
	const attempts = 20
	before, err := ReadSmall(path)
	for i := 0; err == nil && !whole; i++ {
		var again []byte
		if again, err = ReadSmall(path); err == nil && bytes.Equal(before, again) {
			break
		}
		if before = again; i == attempts {
			return nil, fmt.Errorf("%s changes with each of %d readings", path, attempts)
		}
	}
	return before, err
}

// showsAllMounts reports whether the kernel shows all mounts to a reader while others are mounted and unmounted. On kernels before 5.8
// lines can be missing (Linux 9f6c61f96f2d, "proc/mounts: add cursor").
func showsAllMounts() bool {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return false
	}
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 5 || major == 5 && minor >= 8)
}

// NumberAt returns the number of the block device at a path below /dev; 0: none.
func NumberAt(path string) uint64 {
	var stat unix.Stat_t
	if !strings.HasPrefix(path, "/dev/") || unix.Stat(path, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0
	}
	return stat.Rdev
}

// FormatNumber formats a device's number as sysfs and proc do: "8:17".
func FormatNumber(device uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
}

// unescapeMount decodes the octal escapes of mountinfo: space, tab, newline, backslash, hash.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace
