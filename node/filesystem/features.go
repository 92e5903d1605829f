package filesystem

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// suboption is one entry in the list of a mkfs option: nrext64=0 of -i.
type suboption struct{ option, name, value string }

// bigTimestamps and manyExtents are the first kernels that mount an xfs with the features of these names; blockGroupTree is the
// first that mounts a btrfs with that feature.
var (
	bigTimestamps  = kernelVersion{5, 10}
	manyExtents    = kernelVersion{5, 19}
	blockGroupTree = kernelVersion{6, 1}
)

// xfsFeatures returns the default features of a new xfs: those of mkfs.xfs at the time of Linux 5.15, or of Linux 5.4 for an
// older kernel. A newer kernel gets no more, because an admin can downgrade a node with its data. mkfs.xfs has them as
// lts_5.15.conf and lts_5.4.conf, but refuses such a file together with suboptions that the file sets too.
func xfsFeatures(options []string, running kernelVersion) []suboption {
	newer := "1"
	if running.before(bigTimestamps) {
		newer = "0" // its timestamps end in 2038
	}
	features := []suboption{
		{"-m", "crc", "1"}, {"-m", "finobt", "1"}, {"-m", "reflink", "1"}, {"-m", "rmapbt", "0"},
		{"-m", "bigtime", newer}, {"-m", "inobtcount", newer},
		{"-i", "sparse", "1"}, {"-i", "nrext64", "0"},
	}
	if suboptionOf(options, "-m", "crc") == "0" { // the format before version 5 has none of these features
		return nil
	}
	if suboptionOf(options, "-m", "finobt") == "0" { // inobtcount counts its blocks too
		features = slices.DeleteFunc(features, func(f suboption) bool { return f.name == "inobtcount" })
		features = append(features, suboption{"-m", "inobtcount", "0"})
	}
	return slices.DeleteFunc(features, func(f suboption) bool { return suboptionOf(options, f.option, f.name) != "" })
}

// suboptionOf returns the value of a suboption among the arguments of mkfs; "": absent.
func suboptionOf(options []string, option, name string) string {
	at := slices.Index(options, option)
	if at < 0 {
		return ""
	}
	for part := range strings.SplitSeq(options[at+1], ",") {
		if key, value, _ := strings.Cut(part, "="); key == name {
			return value
		}
	}
	return ""
}

// withFeatures adds suboptions to the arguments of mkfs: to the option if it is present, else with a new one.
func withFeatures(options []string, features []suboption) []string {
	options = slices.Clone(options)
	for _, f := range features {
		if at := slices.Index(options, f.option); at >= 0 {
			options[at+1] += "," + f.name + "=" + f.value
		} else {
			options = append(options, f.option, f.name+"="+f.value)
		}
	}
	return options
}

// checkKernel refuses (lvm.KindInvalid) options that create a file system which the kernel cannot mount.
func checkKernel(fsType string, options []string, running kernelVersion) error {
	for _, wanted := range []struct {
		fsType string
		asked  bool
		name   string
		since  kernelVersion
	}{
		{"xfs", suboptionOf(options, "-m", "bigtime") == "1", "-m bigtime=1", bigTimestamps},
		{"xfs", suboptionOf(options, "-m", "inobtcount") == "1", "-m inobtcount=1", bigTimestamps},
		{"xfs", suboptionOf(options, "-i", "nrext64") == "1", "-i nrext64=1", manyExtents},
		{"btrfs", hasSuboption(options, "-O", "block-group-tree"), "-O block-group-tree", blockGroupTree},
	} {
		if wanted.fsType == fsType && wanted.asked && running.before(wanted.since) {
			return lvm.Errorf(lvm.KindInvalid, "mkfsOptions %q: to mount a file system of type %s with %s, the node needs Linux %s or newer, but it runs %s: omit it",
				strings.Join(options, " "), fsType, wanted.name, wanted.since, running)
		}
	}
	return nil
}

// hasSuboption reports whether the arguments of mkfs have a suboption without a value.
func hasSuboption(options []string, option, name string) bool {
	at := slices.Index(options, option)
	return at >= 0 && slices.Contains(strings.Split(options[at+1], ","), name)
}

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
