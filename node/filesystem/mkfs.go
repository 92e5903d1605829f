package filesystem

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// Types are the types of file systems that the driver can create and mount; the first is the default.
var Types = []string{"ext4", "xfs", "btrfs"}

// mkfsDefaults are the default options of mkfs. No discard: no other volume has data in thick extents, and thin blocks do not
// exist yet. No reserve for root: a volume is not a system disk. After an error ext4 becomes read-only, as xfs and btrfs do by
// themselves. Neither -F nor -f: if mkfs finds a signature after all, it must refuse too.
var mkfsDefaults = map[string][]string{
	"ext4":  {"-q", "-m", "0", "-e", "remount-ro", "-E", "nodiscard"},
	"xfs":   {"-q", "-K"},
	"btrfs": {"-q", "-K"},
}

// minimumSizes are the minimum sizes of mkfs.xfs (xfsprogs since 5.19) and mkfs.btrfs.
var minimumSizes = map[string]lvm.Bytes{"xfs": 300 * lvm.MiB, "btrfs": 109 * lvm.MiB}

// MinimumSize returns the size of the smallest device for a file system of the type; 0: any.
func MinimumSize(fsType string) lvm.Bytes { return minimumSizes[fsType] }

// mkfsAllowed are the options that a StorageClass may add, with the pattern of their values, which is compiled when it is used. They only shape the file system.
// None names a file or a device, forces, or moves the file system away from the beginning of the device. The features of -O
// need no mount option, and allow online resizing: sparse_super2 does not (Linux, fs/ext4/resize.c).
var mkfsAllowed = map[string]map[string]string{
	"ext4": {
		"-b": fullMatch(`1024|2048|4096`),
		"-C": fullMatch(`[0-9]{4,9}`),
		"-i": fullMatch(`[0-9]{4,9}`),
		"-I": fullMatch(`128|256|512|1024`),
		"-m": fullMatch(`[0-9]|[1-4][0-9]`),
		"-N": fullMatch(`[0-9]{1,10}`),
		"-T": fullMatch(`[a-z0-9]{1,16}`),
		"-L": fullMatch(`[A-Za-z0-9_][A-Za-z0-9_.-]{0,15}`),
		"-E": commaList(`(stride|stripe_width|lazy_itable_init|lazy_journal_init|packed_meta_blocks)=[0-9]{1,9}|(no)?discard`),
		"-J": commaList(`(size|fast_commit_size)=[0-9]{1,6}`),
		"-O": commaList(`\^?(64bit|bigalloc|dir_index|dir_nlink|ext_attr|extent|extra_isize|fast_commit|flex_bg|has_journal|huge_file|inline_data|large_dir|large_file|metadata_csum|metadata_csum_seed|orphan_file|project|quota|resize_inode|sparse_super)`),
	},
	"xfs": {
		"-b": commaList(`size=(1024|2048|4096|1k|2k|4k)`),
		"-d": commaList(`(agcount|agsize|su|sw|sunit|swidth)=[0-9]{1,9}[kmg]?`),
		"-i": commaList(`(size|maxpct|align|attr|sparse|nrext64|perblock)=[0-9]{1,4}`),
		"-l": commaList(`(size|su|sunit|lazy-count|version)=[0-9]{1,9}[kmg]?`),
		"-m": commaList(`(crc|finobt|inobtcount|reflink|rmapbt|bigtime)=[01]`),
		"-n": commaList(`(size|ftype)=[0-9]{1,5}k?`),
		"-s": commaList(`size=(512|1024|2048|4096|1k|2k|4k)`),
		"-L": fullMatch(`[A-Za-z0-9_][A-Za-z0-9_.-]{0,11}`),
	},
	"btrfs": {
		"-d": fullMatch(`single|dup`),
		"-m": fullMatch(`single|dup`),
		"-n": fullMatch(`4096|8192|16384|32768|65536|4k|8k|16k|32k|64k`),
		"-s": fullMatch(`4096|4k`),
		"-O": commaList(`\^?(extref|skinny-metadata|no-holes|free-space-tree|block-group-tree|quota)`),
		"-L": fullMatch(`[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}`),
	},
}

func fullMatch(pattern string) string { return `^(?:` + pattern + `)$` }

// commaList returns the pattern of a comma-separated list of such values.
func commaList(pattern string) string {
	return `^(?:` + pattern + `)(?:,(?:` + pattern + `))*$`
}

// CheckOptions refuses (lvm.KindInvalid) an unsupported type of file system, and mkfs options that the type does not allow,
// or that create a file system which this node's kernel cannot mount.
func CheckOptions(fsType, mkfsOptions string) error {
	if !slices.Contains(Types, fsType) {
		return lvm.Errorf(lvm.KindInvalid, "the file system type %q is not supported; csi.storage.k8s.io/fstype can be one of %q", fsType, Types)
	}
	_, err := ParseOptions(fsType, mkfsOptions)
	return err
}

// ParseOptions returns mkfs options, "-i 65536 -L data", as arguments. It refuses (lvm.KindInvalid) those that the type does not allow, or that
// create a file system which this node's kernel cannot mount.
func ParseOptions(fsType, mkfsOptions string) ([]string, error) {
	options, err := parseMkfs(fsType, mkfsOptions)
	if err != nil {
		return nil, err
	}
	return options, checkKernel(fsType, options, runningKernel())
}

// parseMkfs splits mkfs options. Each option has its value in the next argument, because no shell joins or splits them.
func parseMkfs(fsType, options string) ([]string, error) {
	args := strings.Fields(options)
	for i := 0; i < len(args); i += 2 {
		values, there := mkfsAllowed[fsType][args[i]]
		switch {
		case !there:
			return nil, lvm.Errorf(lvm.KindInvalid, "mkfsOptions %q: %q is not allowed for %s; allowed are %s, each with its value after a space",
				options, args[i], fsType, strings.Join(slices.Sorted(maps.Keys(mkfsAllowed[fsType])), " "))
		case slices.Contains(args[:i], args[i]):
			return nil, lvm.Errorf(lvm.KindInvalid, "mkfsOptions %q: %s occurs twice", options, args[i])
		case i+1 == len(args):
			return nil, lvm.Errorf(lvm.KindInvalid, "mkfsOptions %q: %s has no value", options, args[i])
		case !regexp.MustCompile(values).MatchString(args[i+1]):
			return nil, lvm.Errorf(lvm.KindInvalid, "mkfsOptions %q: %s cannot be %q for %s", options, args[i], args[i+1], fsType)
		case fsType == "xfs" && repeated(args[i+1]) != "": // mkfs.xfs refuses it
			return nil, lvm.Errorf(lvm.KindInvalid, "mkfsOptions %q: %s has %s twice", options, args[i], repeated(args[i+1]))
		}
	}
	return args, nil
}

// repeated returns the name of a suboption that occurs twice in a list; "": none.
func repeated(list string) string {
	seen := map[string]bool{}
	for part := range strings.SplitSeq(list, ",") {
		name, _, _ := strings.Cut(part, "=")
		if seen[name] {
			return name
		}
		seen[name] = true
	}
	return ""
}

// mkfsArgs returns the arguments of mkfs.<fsType> for a kernel. If an option occurs twice, mkfs.ext4 uses the last one, so the
// class's options follow the defaults, also in the list of extended options. mkfs.xfs refuses a suboption that occurs twice
// ("respecified"), so mkfsArgs merges the kernel's features into the class's options.
func mkfsArgs(fsType, device string, options []string, running kernelVersion) []string {
	if fsType == "xfs" {
		options = withFeatures(options, xfsFeatures(options, running))
	}
	args := slices.Concat(mkfsDefaults[fsType], options)
	if at := slices.Index(options, "-E"); fsType == "ext4" && at >= 0 {
		args[len(mkfsDefaults[fsType])+at+1] = "nodiscard," + options[at+1]
	}
	return append(args, device)
}

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
