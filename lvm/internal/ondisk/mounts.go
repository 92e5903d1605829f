package ondisk

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadMounts returns the mount points of the file system on each block device, as far as this process can see (proc(5),
// mountinfo), by the device's number, "8:17".
func ReadMounts(mountinfo string) (map[string][]string, error) {
	mounts := map[string][]string{}
	err := eachMount(mountinfo, func(m mount) {
		number := m.number
		if strings.HasPrefix(number, "0:") { // btrfs mounts have other numbers
			number = NumberAt(m.source)
		}
		if number != "" {
			mounts[number] = append(mounts[number], m.place)
		}
	})
	return mounts, err
}

// BoundNodes returns where a device node may be bound: mount points of a part of a file system that holds device nodes. The kubelet
// and NodePublishVolume bind raw block volumes so. Such a mount does not keep the device open.
func BoundNodes(mountinfo string) (places []string, err error) {
	err = eachMount(mountinfo, func(m mount) {
		if m.root != "/" && (m.kind == "devtmpfs" || m.kind == "tmpfs") {
			places = append(places, m.place)
		}
	})
	return places, err
}

// mount is a line of mountinfo.
type mount struct{ number, root, place, kind, source string }

// eachMount ignores lines that it cannot parse. It does not use github.com/moby/sys/mountinfo, as package node does: for one line
// that it cannot parse, or that is longer than 64 KiB, that library refuses the whole table. An overlay of many directories can
// have such a line, and the device scan would fail.
func eachMount(mountinfo string, do func(mount)) error {
	f, err := os.Open(mountinfo)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, origin := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(origin) < 2 {
			continue
		}
		do(mount{fields[2], fields[3], unescapeMount(fields[4]), origin[0], unescapeMount(origin[1])})
	}
	return lines.Err()
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
