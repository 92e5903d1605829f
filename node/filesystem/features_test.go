package filesystem

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
