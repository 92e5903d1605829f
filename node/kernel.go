package node

import (
	"fmt"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// kernelVersion is the major and minor version of a Linux kernel, as 5.15.
type kernelVersion struct{ major, minor int }

var releasePattern = regexp.MustCompile(`^([0-9]{1,4})\.([0-9]{1,4})`)

// parseKernel parses a release of uname(2), "5.15.0-91-generic". An unreadable one is version 0.0: for it the driver creates
// nothing that an old kernel cannot mount.
func parseKernel(release string) kernelVersion {
	match := releasePattern.FindStringSubmatch(release)
	if match == nil {
		return kernelVersion{}
	}
	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])
	return kernelVersion{major, minor}
}

// runningKernel returns the version of this machine's kernel.
func runningKernel() kernelVersion {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return kernelVersion{}
	}
	return parseKernel(unix.ByteSliceToString(name.Release[:]))
}

func (v kernelVersion) before(other kernelVersion) bool {
	return v.major < other.major || v.major == other.major && v.minor < other.minor
}

func (v kernelVersion) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }
