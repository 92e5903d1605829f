package filesystem

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

func TestMkfsArguments(t *testing.T) {
	for _, test := range []struct{ fsType, options, want string }{
		{"ext4", "", "-q -m 0 -e remount-ro -E nodiscard /dev/x"},
		{"xfs", "", "-q -K -m crc=1,finobt=1,reflink=1,rmapbt=0,bigtime=1,inobtcount=1 -i sparse=1,nrext64=0 /dev/x"},
		{"btrfs", "", "-q -K /dev/x"},
		{"ext4", "-i 65536", "-q -m 0 -e remount-ro -E nodiscard -i 65536 /dev/x"},
		{"ext4", " -m 1   -E stride=16,stripe_width=64 -T largefile4", "-q -m 0 -e remount-ro -E nodiscard -m 1 -E nodiscard,stride=16,stripe_width=64 -T largefile4 /dev/x"},
		{"ext4", "-O ^has_journal,bigalloc -C 65536", "-q -m 0 -e remount-ro -E nodiscard -O ^has_journal,bigalloc -C 65536 /dev/x"},
		{"xfs", "-d su=64k,sw=4 -m reflink=0,crc=1 -i size=1024", "-q -K -d su=64k,sw=4 -m reflink=0,crc=1,finobt=1,rmapbt=0,bigtime=1,inobtcount=1 -i size=1024,sparse=1,nrext64=0 /dev/x"},
		{"btrfs", "-d single -m dup -n 16k -L data", "-q -K -d single -m dup -n 16k -L data /dev/x"},
	} {
		options, err := parseMkfs(test.fsType, test.options)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := strings.Join(mkfsArgs(test.fsType, "/dev/x", options, kernelVersion{6, 1}), " "); got != test.want {
			t.Errorf("%s %q: got %s, want %s", test.fsType, test.options, got, test.want)
		}
	}
}

// Nothing that names a file, forces, moves the file system or smuggles in a second option gets past.
func TestMkfsRefuses(t *testing.T) {
	for _, test := range []struct{ fsType, options, says string }{
		{"ext4", "-F", `"-F" is not allowed for ext4`},
		{"ext4", "-FF x", `"-FF"`},
		{"ext4", "-d /etc", `"-d"`},
		{"ext4", "/dev/sda", `"/dev/sda"`},
		{"ext4", "-m", "no value"},
		{"ext4", "-m 1 -m 2", "twice"},
		{"ext4", "-m1", `"-m1"`},
		{"ext4", "-m 50", "50"},
		{"ext4", "-E offset=4096", "offset"},
		{"ext4", "-E stride=1,offset=4096", "offset"},
		{"ext4", "-E root_owner=0:0", "root_owner"},
		{"ext4", "-J device=/dev/sda", "device"},
		{"ext4", "-O journal_dev", "journal_dev"},
		{"ext4", "-O ^has_journal,encrypt", "encrypt"},
		{"ext4", "-L -F", "-L cannot be"},
		{"ext4", "-L a\nb", `"b" is not allowed`},
		{"ext4", "-U clear", `"-U"`},
		{"xfs", "-f", `"-f"`},
		{"xfs", "-d file=1,name=/etc/passwd,size=300m", "cannot be"},
		{"xfs", "-l logdev=/dev/sda", "cannot be"},
		{"xfs", "-c options=/etc/passwd", `"-c"`},
		{"xfs", "-p /etc", `"-p"`},
		{"xfs", "-N", `"-N"`},
		{"xfs", "-m reflink=0,crc=1,reflink=1", "-m has reflink twice"},
		{"ext4", "-O sparse_super2", "sparse_super2"},
		{"ext4", "-E num_backup_sb=1", "num_backup_sb"},
		{"btrfs", "-r /etc", `"-r"`},
		{"btrfs", "--rootdir /etc", `"--rootdir"`},
		{"btrfs", "-m raid1", "raid1"},
		{"ext3", "", `"ext3" is not supported`},
		{"", "", `""`},
	} {
		err := CheckOptions(test.fsType, test.options)
		if err == nil || lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s %q: got %v; want it to say %s", test.fsType, test.options, err, test.says)
		}
	}
}

// TestMkfsReference: the reference names the options that each file system may have, and those that it has anyway.
func TestMkfsReference(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/parameters.md")
	check.Must(t, err)
	for _, fsType := range Types {
		line := fmt.Sprintf("- `%s`: `%s`; default `%s`", fsType,
			strings.Join(slices.Sorted(maps.Keys(mkfsAllowed[fsType])), " "), strings.Join(mkfsDefaults[fsType], " "))
		if !strings.Contains(string(page), line) {
			t.Errorf("the page lacks the line %s", line)
		}
		for option, values := range mkfsAllowed[fsType] {
			if _, err := regexp.Compile(values); err != nil {
				t.Errorf("the pattern of %s: %v", option, err)
			}
		}
	}
}

// TestXFSFeatures: a new xfs is mounted by the kernel that it is made on, and by those a node may be set back to; what the
// class says wins, and no suboption stands there twice.
func TestXFSFeatures(t *testing.T) {
	const (
		newer = "-m crc=1,finobt=1,reflink=1,rmapbt=0,bigtime=1,inobtcount=1 -i sparse=1,nrext64=0"
		older = "-m crc=1,finobt=1,reflink=1,rmapbt=0,bigtime=0,inobtcount=0 -i sparse=1,nrext64=0"
	)
	for _, test := range []struct {
		kernel        kernelVersion
		options, want string
	}{
		{kernelVersion{7, 2}, "", newer},
		{kernelVersion{5, 15}, "", newer},
		{kernelVersion{5, 10}, "", newer},
		{kernelVersion{5, 9}, "", older},
		{kernelVersion{5, 4}, "", older},
		{kernelVersion{4, 18}, "", older},
		{kernelVersion{}, "", older},
		{kernelVersion{6, 1}, "-m reflink=0", "-m reflink=0,crc=1,finobt=1,rmapbt=0,bigtime=1,inobtcount=1 -i sparse=1,nrext64=0"},
		{kernelVersion{6, 1}, "-i size=1024,nrext64=1 -L data", "-i size=1024,nrext64=1,sparse=1 -L data -m crc=1,finobt=1,reflink=1,rmapbt=0,bigtime=1,inobtcount=1"},
		{kernelVersion{6, 1}, "-m finobt=0", "-m finobt=0,crc=1,reflink=1,rmapbt=0,bigtime=1,inobtcount=0 -i sparse=1,nrext64=0"},
		{kernelVersion{6, 1}, "-m crc=0 -i size=512", "-m crc=0 -i size=512"},
	} {
		options, err := parseMkfs("xfs", test.options)
		check.Must(t, err)
		if got := strings.Join(withFeatures(options, xfsFeatures(options, test.kernel)), " "); got != test.want {
			t.Errorf("Linux %s, %q: got %s, want %s", test.kernel, test.options, got, test.want)
		}
		if strings.Join(options, " ") != test.options {
			t.Errorf("the options of the class became %q", options)
		}
	}
}

func TestOptionsThatTheKernelDoesNotMount(t *testing.T) {
	for _, test := range []struct {
		fsType, options string
		kernel          kernelVersion
		says            string // "": allowed
	}{
		{"btrfs", "-O block-group-tree", kernelVersion{6, 0}, "with -O block-group-tree, the node needs Linux 6.1"},
		{"btrfs", "-O no-holes,block-group-tree", kernelVersion{5, 15}, "it runs 5.15"},
		{"btrfs", "-O block-group-tree", kernelVersion{6, 1}, ""},
		{"btrfs", "-O ^block-group-tree", kernelVersion{5, 4}, ""},
		{"xfs", "-i nrext64=1", kernelVersion{5, 18}, "with -i nrext64=1, the node needs Linux 5.19"},
		{"xfs", "-i size=512,nrext64=1", kernelVersion{}, "nrext64"},
		{"xfs", "-i nrext64=1", kernelVersion{5, 19}, ""},
		{"xfs", "-i nrext64=0", kernelVersion{5, 4}, ""},
		{"xfs", "-m bigtime=1", kernelVersion{5, 4}, "bigtime"},
		{"xfs", "-m inobtcount=1", kernelVersion{5, 9}, "inobtcount"},
		{"ext4", "-O orphan_file", kernelVersion{5, 4}, ""}, // e2fsck comes before each mount
	} {
		options, err := parseMkfs(test.fsType, test.options)
		check.Must(t, err)
		err = checkKernel(test.fsType, options, test.kernel)
		if (err == nil) != (test.says == "") || err != nil && (lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s %s on Linux %s: %v; want it to say %q", test.fsType, test.options, test.kernel, err, test.says)
		}
	}
}

func TestParseKernel(t *testing.T) {
	for release, want := range map[string]kernelVersion{
		"5.15.0-91-generic":        {5, 15},
		"4.18.0-553.el8_10.x86_64": {4, 18},
		"6.1":                      {6, 1},
		"7.2.7+deb14-um":           {7, 2},
		"":                         {},
		"six":                      {},
		"99999999999.1":            {},
	} {
		if got := parseKernel(release); got != want {
			t.Errorf("%q: got %s, want %s", release, got, want)
		}
	}
	if v := runningKernel(); v.before(kernelVersion{4, 0}) {
		t.Errorf("the kernel of this machine is %s", v)
	}
}
