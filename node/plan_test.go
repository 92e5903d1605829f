package node

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

const (
	ourDevice   DeviceNumber = 253<<8 | 3
	otherDevice DeviceNumber = 253<<8 | 4
)

// verdict is an action, or the kind of the error and a word of it.
type verdict struct {
	act  action
	kind lvm.Kind
	says string
}

func do(act action) verdict                     { return verdict{act: act} }
func refuse(kind lvm.Kind, says string) verdict { return verdict{kind: kind, says: says} }

func (v verdict) check(t *testing.T, act action, err error) {
	t.Helper()
	switch {
	case v.says == "" && (err != nil || act != v.act):
		t.Errorf("got action %d, %v; want action %d", act, err, v.act)
	case v.says != "" && (err == nil || lvm.KindOf(err) != v.kind || !strings.Contains(err.Error(), v.says)):
		t.Errorf("got action %d, %v; want kind %d with the words %q", act, err, v.kind, v.says)
	}
}

func fsMount(device DeviceNumber, readOnly bool) *Mount {
	return &Mount{Device: device, FSType: "ext4", Source: "/dev/dm-4", ReadOnly: readOnly}
}

func TestPlanStage(t *testing.T) {
	for _, test := range []struct {
		what     string
		place    PathInfo
		want     verdict
		readOnly bool
	}{
		{"nothing there", PathInfo{}, do(actMount), false},
		{"an empty directory", PathInfo{Kind: PathEmptyDir}, do(actMount), false},
		{"our mount", PathInfo{Mount: fsMount(ourDevice, false)}, do(actNothing), false},
		{"our mount, read-only", PathInfo{Mount: fsMount(ourDevice, true)}, do(actNothing), true},
		{"our mount, for writing before", PathInfo{Mount: fsMount(ourDevice, false)}, refuse(lvm.KindExists, "writable, but read-only was requested"), true},
		{"our mount, read-only before", PathInfo{Mount: fsMount(ourDevice, true)}, refuse(lvm.KindExists, "read-only, but writable was requested"), false},
		{"our mount, of another type", PathInfo{Mount: &Mount{Device: ourDevice, FSType: "xfs"}}, refuse(lvm.KindExists, "of type xfs, but ext4 was requested"), false},
		{"another volume's mount", PathInfo{Mount: fsMount(otherDevice, false)}, refuse(lvm.KindConflict, "/dev/dm-4"), false},
		{"somebody's files", PathInfo{Kind: PathNonEmptyDir}, refuse(lvm.KindConflict, "not empty"), false},
		{"an empty file", PathInfo{Kind: PathEmptyFile}, refuse(lvm.KindConflict, "an empty file"), false},
		{"a file", PathInfo{Kind: PathNonEmptyFile}, refuse(lvm.KindConflict, "with content"), false},
		{"a device", PathInfo{Kind: PathDevice, Device: ourDevice}, refuse(lvm.KindConflict, "a block device"), false},
		{"a link", PathInfo{Kind: PathOther}, refuse(lvm.KindConflict, "neither"), false},
	} {
		t.Run(test.what, func(t *testing.T) {
			act, err := planStage(test.place, ourDevice, stageRequest{volume: volume{fsType: "ext4", mountReadOnly: test.readOnly}})
			test.want.check(t, act, err)
		})
	}
}

func TestPlanContent(t *testing.T) {
	for _, test := range []struct {
		what    string
		content Content
		fsType  string
		size    lvm.Bytes
		want    verdict
	}{
		{"blank", Content{}, "ext4", 4 * lvm.MiB, do(actFormat)},
		{"blank, xfs", Content{}, "xfs", 300 * lvm.MiB, do(actFormat)},
		{"blank, too small for xfs", Content{}, "xfs", 300*lvm.MiB - 1, refuse(lvm.KindInvalid, "300 MiB")},
		{"blank, btrfs", Content{}, "btrfs", 109 * lvm.MiB, do(actFormat)},
		{"blank, too small for btrfs", Content{}, "btrfs", 109*lvm.MiB - 1, refuse(lvm.KindInvalid, "109 MiB")},
		{"ours", Content{Type: "ext4"}, "ext4", lvm.GiB, do(actCheck)},
		{"ours, small xfs of an older mkfs", Content{Type: "xfs"}, "xfs", 64 * lvm.MiB, do(actCheck)},
		{"ours, in use", Content{Type: "ext4", Mounted: true}, "ext4", lvm.GiB, do(actMount)},
		{"ext4 without what it has added", Content{Type: "ext3"}, "ext4", lvm.GiB, do(actCheck)},
		{"the same without a journal", Content{Type: "ext2"}, "ext4", lvm.GiB, do(actCheck)},
		{"ext3 where xfs is wanted", Content{Type: "ext3"}, "xfs", lvm.GiB, refuse(lvm.KindConflict, "ext3")},
		{"another type", Content{Type: "btrfs"}, "ext4", lvm.GiB, refuse(lvm.KindConflict, "btrfs")},
		{"xfs that was never finished", Content{Unfinished: "xfs"}, "xfs", 300 * lvm.MiB, do(actFormat)},
		{"too small for xfs, and never finished", Content{Unfinished: "ext4"}, "xfs", 300*lvm.MiB - 1, refuse(lvm.KindInvalid, "300 MiB")},
		{"ours, never mounted", Content{Type: "ext4", Marked: true}, "ext4", lvm.GiB, do(actCheck)},
		{"something else", Content{Others: []string{"LVM2_member (raid)"}}, "ext4", lvm.GiB, refuse(lvm.KindConflict, "LVM2_member")},
		{"the right type and something else", Content{Type: "ext4", Others: []string{"a partition table (gpt)"}}, "ext4", lvm.GiB, refuse(lvm.KindConflict, "gpt")},
		{"many things", Content{Others: []string{"a", "b", "c"}}, "ext4", lvm.GiB, refuse(lvm.KindConflict, "contains a, b and c,")},
	} {
		t.Run(test.what, func(t *testing.T) {
			act, err := planContent("/dev/dm-3", test.content, origin{}, test.fsType, test.size)
			test.want.check(t, act, err)
		})
	}
}

func TestPlanPublish(t *testing.T) {
	staged := PathInfo{Mount: fsMount(ourDevice, false)}
	mounted := func(readOnly bool) PathInfo { return PathInfo{Mount: fsMount(ourDevice, readOnly)} }
	bound := func(device DeviceNumber, readOnly bool) PathInfo {
		return PathInfo{Kind: PathDevice, Device: device, Mount: &Mount{FSType: "devtmpfs", Source: "dev", ReadOnly: readOnly}}
	}
	file, block := volume{id: testID}, volume{id: testID, block: true}
	single, singleBlock := volume{id: testID, onePod: true}, volume{id: testID, block: true, onePod: true}
	// Each case runs with the volume at its staging path, at its target and at another pod's.
	mounts := []MountPoint{{"/staging", false}, {"/target", false}, {"/another", false}}
	for _, test := range []struct {
		what           string
		volume         volume
		readOnly       bool
		target, staged PathInfo
		want           verdict
	}{
		{"first", file, false, PathInfo{}, staged, do(actMount)},
		{"onto an empty directory", file, false, PathInfo{Kind: PathEmptyDir}, staged, do(actMount)},
		{"again", file, false, mounted(false), staged, do(actNothing)},
		{"again, read-only", file, true, mounted(true), staged, do(actNothing)},
		{"read-only half done", file, true, mounted(false), staged, do(actRemount)},
		{"read-only before, now for writing", file, false, mounted(true), staged, refuse(lvm.KindExists, "read-only")},
		{"not staged", file, false, PathInfo{}, PathInfo{Kind: PathEmptyDir}, refuse(lvm.KindConflict, "staged there first")},
		{"another volume is staged", file, false, PathInfo{}, PathInfo{Mount: fsMount(otherDevice, false)}, refuse(lvm.KindConflict, "staged there first")},
		{"another volume at the target", file, false, PathInfo{Mount: fsMount(otherDevice, false)}, staged, refuse(lvm.KindConflict, "/dev/dm-4")},
		{"somebody's files", file, false, PathInfo{Kind: PathNonEmptyDir}, staged, refuse(lvm.KindConflict, "not empty")},
		{"a file where a directory belongs", file, false, PathInfo{Kind: PathEmptyFile}, staged, refuse(lvm.KindConflict, "an empty file")},
		{"one pod at a time", single, false, PathInfo{}, staged, refuse(lvm.KindInUse, "/another")},
		{"one pod at a time, again", single, false, mounted(false), staged, do(actNothing)},
		{"one pod at a time, block", singleBlock, false, PathInfo{}, PathInfo{}, refuse(lvm.KindInUse, "/")},
		{"block, first", block, false, PathInfo{}, PathInfo{}, do(actMount)},
		{"block, onto an empty file", block, false, PathInfo{Kind: PathEmptyFile}, PathInfo{}, do(actMount)},
		{"block, again", block, false, bound(ourDevice, false), PathInfo{}, do(actNothing)},
		{"block, read-only half done", block, true, bound(ourDevice, false), PathInfo{}, do(actRemount)},
		{"block, another device", block, false, bound(otherDevice, false), PathInfo{}, refuse(lvm.KindConflict, "devtmpfs")},
		{"block, a file system at the target", block, false, mounted(false), PathInfo{}, refuse(lvm.KindConflict, "/dev/dm-4")},
		{"block, a directory", block, false, PathInfo{Kind: PathEmptyDir}, PathInfo{}, refuse(lvm.KindConflict, "an empty directory")},
		{"block, a bare device node", block, false, PathInfo{Kind: PathDevice, Device: ourDevice}, PathInfo{}, refuse(lvm.KindConflict, "a block device")},
	} {
		t.Run(test.what, func(t *testing.T) {
			test.volume.readOnly = test.readOnly
			test.target.Path, test.staged.Path = "/target", "/staging"
			act, err := planPublish(publishRequest{test.volume, "/staging", "/target"}, test.target, test.staged, mounts, ourDevice)
			test.want.check(t, act, err)
		})
	}
}

func TestRemovable(t *testing.T) {
	for kind, want := range map[PathKind]bool{
		PathAbsent: true, PathEmptyDir: true, PathEmptyFile: true,
		PathNonEmptyDir: false, PathNonEmptyFile: false, PathDevice: false, PathOther: false,
	} {
		if err := checkRemovable(PathInfo{Kind: kind}); (err == nil) != want {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestParseBlkid(t *testing.T) {
	for out, want := range map[string]string{
		"DEVNAME=/dev/dm-0\nUUID=x\nTYPE=ext4\nUSAGE=filesystem\n":             "ext4|",
		"DEVNAME=/dev/dm-0\nTYPE=LVM2_member\nUSAGE=raid\n":                    "|LVM2_member (raid)",
		"DEVNAME=/dev/dm-0\nTYPE=crypto_LUKS\nUSAGE=crypto\n":                  "|crypto_LUKS (crypto)",
		"DEVNAME=/dev/dm-0\nTYPE=swap\nUSAGE=other\n":                          "|swap (other)",
		"DEVNAME=/dev/dm-0\nPTUUID=x\nPTTYPE=gpt\n":                            "|a partition table (gpt)",
		"LABEL=TYPE=xfs\nTYPE=vfat\nUSAGE=filesystem\nPTTYPE=dos\n":            "vfat|a partition table (dos)",
		"DEVNAME=/dev/dm-0\n":                                                  "error",
		"DEVNAME=/dev/sda2\nPART_ENTRY_SCHEME=dos\nPART_ENTRY_DISK=8:0\n":      "|",
		"DEVNAME=/dev/sda2\nPART_ENTRY_DISK=8:0\nTYPE=xfs\nUSAGE=filesystem\n": "xfs|",
		"DEVNAME=/dev/sda2\nPART_ENTRY_DISK=8:0\nSOMETHING=new\n":              "error",
		"": "error",
	} {
		c, err := parseBlkid([]byte(out))
		got := c.Type + "|" + strings.Join(c.Others, "|")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: got %s (%v), want %s", out, got, err, want)
		}
	}
}

func TestParseWipefs(t *testing.T) {
	for out, want := range map[string]string{
		"":                                     "",
		"{\n   \"signatures\": [\n\n   ]\n}\n": "",
		`{"signatures": [{"device":"loop1","offset":"0x438","type":"ext4","uuid":"x","label":null},{"device":"loop1","offset":"0x1fe","type":"dos","uuid":null,"label":null}]}`: "ext4 (at byte 0x438)|dos (at byte 0x1fe)",
		"wipefs: no": "error",
	} {
		found, err := parseWipefs([]byte(out))
		got := strings.Join(found, "|")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: got %s (%v), want %s", out, got, err, want)
		}
	}
}
