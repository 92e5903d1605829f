package ondisk

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadMounts returns the mount points of the file system on each block device, as far as this process can see (proc(5),
// mountinfo), by the device's number, "8:17". It does not use github.com/moby/sys/mountinfo, as package node does: for one line
// that it cannot parse, or that is longer than 64 KiB, that library refuses the whole table. An overlay of many directories can
// have such a line, and the device scan would fail.
func ReadMounts(mountinfo string) (map[string][]string, error) {
	f, err := os.Open(mountinfo)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	mounts := map[string][]string{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, origin := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(origin) < 2 {
			continue
		}
		number := fields[2]
		if strings.HasPrefix(number, "0:") { // btrfs mounts have other numbers
			if number = NumberAt(unescapeMount(origin[1])); number == "" {
				continue
			}
		}
		mounts[number] = append(mounts[number], unescapeMount(fields[4]))
	}
	return mounts, lines.Err()
}

// NumberAt returns the number of the block device at a path; "": none.
func NumberAt(path string) string {
	var stat unix.Stat_t
	if !strings.HasPrefix(path, "/dev/") || unix.Stat(path, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return ""
	}
	return NumberOf(stat.Rdev)
}

// NumberOf formats a device's number as sysfs and proc do.
func NumberOf(device uint64) string {
	return fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))
}

// mountEscapes decodes the octal escapes of mountinfo: space, tab, newline, backslash, hash.
var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

func unescapeMount(s string) string { return mountEscapes.Replace(s) }
