package filesystem

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// verdict is an action, or the kind of the error and a word of it.
type verdict struct {
	act  Action
	kind lvm.Kind
	says string
}

func do(act Action) verdict                     { return verdict{act: act} }
func refuse(kind lvm.Kind, says string) verdict { return verdict{kind: kind, says: says} }

func (v verdict) check(t *testing.T, act Action, err error) {
	t.Helper()
	switch {
	case v.says == "" && (err != nil || act != v.act):
		t.Errorf("got action %d, %v; want action %d", act, err, v.act)
	case v.says != "" && (err == nil || lvm.KindOf(err) != v.kind || !strings.Contains(err.Error(), v.says)):
		t.Errorf("got action %d, %v; want kind %d with the words %q", act, err, v.kind, v.says)
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
		{"blank", Content{}, "ext4", 4 * lvm.MiB, do(ActFormat)},
		{"blank, xfs", Content{}, "xfs", 300 * lvm.MiB, do(ActFormat)},
		{"blank, too small for xfs", Content{}, "xfs", 300*lvm.MiB - 1, refuse(lvm.KindInvalid, "300 MiB")},
		{"blank, btrfs", Content{}, "btrfs", 109 * lvm.MiB, do(ActFormat)},
		{"blank, too small for btrfs", Content{}, "btrfs", 109*lvm.MiB - 1, refuse(lvm.KindInvalid, "109 MiB")},
		{"ours", Content{Type: "ext4"}, "ext4", lvm.GiB, do(ActCheck)},
		{"ours, small xfs of an older mkfs", Content{Type: "xfs"}, "xfs", 64 * lvm.MiB, do(ActCheck)},
		{"ours, in use", Content{Type: "ext4", Mounted: true}, "ext4", lvm.GiB, do(ActMount)},
		{"ext4 without what it has added", Content{Type: "ext3"}, "ext4", lvm.GiB, do(ActCheck)},
		{"the same without a journal", Content{Type: "ext2"}, "ext4", lvm.GiB, do(ActCheck)},
		{"ext3 where xfs is wanted", Content{Type: "ext3"}, "xfs", lvm.GiB, refuse(lvm.KindConflict, "ext3")},
		{"another type", Content{Type: "btrfs"}, "ext4", lvm.GiB, refuse(lvm.KindConflict, "btrfs")},
		{"xfs that was never finished", Content{Unfinished: "xfs"}, "xfs", 300 * lvm.MiB, do(ActFormat)},
		{"too small for xfs, and never finished", Content{Unfinished: "ext4"}, "xfs", 300*lvm.MiB - 1, refuse(lvm.KindInvalid, "300 MiB")},
		{"ours, never mounted", Content{Type: "ext4", Marked: true}, "ext4", lvm.GiB, do(ActCheck)},
		{"something else", Content{Others: []string{"LVM2_member (raid)"}}, "ext4", lvm.GiB, refuse(lvm.KindConflict, "LVM2_member")},
		{"the right type and something else", Content{Type: "ext4", Others: []string{"a partition table (gpt)"}}, "ext4", lvm.GiB, refuse(lvm.KindConflict, "gpt")},
		{"many things", Content{Others: []string{"a", "b", "c"}}, "ext4", lvm.GiB, refuse(lvm.KindConflict, "contains a, b and c,")},
	} {
		t.Run(test.what, func(t *testing.T) {
			act, err := PlanContent("/dev/dm-3", test.content, Origin{}, test.fsType, test.size)
			test.want.check(t, act, err)
		})
	}
}

// TestCheckFormat: only a mark, or a superblock that says so itself, allows the format of a volume that the driver created. For volumes
// without the tag the absence of all remains suffices. A copy and a raw volume are never formatted.
func TestCheckFormat(t *testing.T) {
	created, adopted := Origin{marked: true}, Origin{}
	rest := Remains{Kind: "btrfs", What: "a mirror of a btrfs superblock at byte 67108864"}
	backup := Remains{Kind: "ext4", What: "a copy of an ext4 superblock", Block: 8193, BlockSize: 1024}
	for _, test := range []struct {
		what    string
		content Content
		origin  Origin
		says    string // "": it may be formatted
	}{
		{"new", Content{Marked: true}, created, ""},
		{"new, adopted", Content{}, adopted, ""},
		{"an interrupted mkfs.xfs", Content{Unfinished: "xfs"}, created, ""},
		{"an interrupted mkfs.ext4, with its mark", Content{Unfinished: "ext4", Marked: true}, created, ""},
		{"zeroes", Content{}, created, "was in use, and contains nothing that the driver recognizes: its beginning is damaged"},
		{"zeroes and a mirror", Content{Rest: rest}, created, "but it has a mirror of a btrfs superblock at byte 67108864"},
		{"the same, adopted", Content{Rest: rest}, adopted, "btrfs rescue super-recover /dev/dm-3"},
		{"a copy of the superblock", Content{Rest: backup}, adopted, "e2fsck -b 8193 -B 1024 /dev/dm-3"},
		{"a restored volume", Content{}, Origin{copied: true}, "never formats a copy"},
		{"a restored volume with its own mark", Content{Marked: true}, Origin{copied: true, marked: true}, "never formats a copy"},
		{"a raw volume", Content{}, Origin{raw: true}, "raw block volume"},
	} {
		act, err := PlanContent("/dev/dm-3", test.content, test.origin, "ext4", lvm.GiB)
		want := do(ActFormat)
		if test.says != "" {
			want = refuse(lvm.KindConflict, test.says)
		}
		t.Run(test.what, func(t *testing.T) { want.check(t, act, err) })
	}
}

// TestRefusalsNameTheRepair: also of content that another program may have written.
func TestRefusalsNameTheRepair(t *testing.T) {
	for fsType, tool := range map[string]string{"ext4": "e2fsck -b 32768 -B 4096 /dev/dm-3", "xfs": "xfs_repair /dev/dm-3", "btrfs": "btrfs rescue super-recover /dev/dm-3", "luks": "cryptsetup repair /dev/dm-3"} {
		for _, o := range []Origin{{marked: true}, {}} {
			err := refuseContent("/dev/dm-3", Content{Others: []string{"noise"}}, o, fsType)
			if lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), tool) || !strings.Contains(err.Error(), "noise") || o.marked == strings.Contains(err.Error(), "wipefs -a") {
				t.Errorf("%s, %+v: %v", fsType, o, err)
			}
		}
	}
}

// TestCheckBlank: what is on a logical volume is never overwritten by a LUKS header.
func TestCheckBlank(t *testing.T) {
	for what, content := range map[string]Content{
		"a file system of type ext4": {Type: "ext4"}, "swap (other)": {Others: []string{"swap (other)"}}, "a mounted file system": {Mounted: true},
		"the beginning of a file system of type xfs and c": {Unfinished: "xfs", Others: []string{"c"}},
	} {
		if err := CheckBlank("/dev/dm-3", content, Origin{}); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), what+" instead of a LUKS header") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := CheckBlank("/dev/dm-3", Content{Marked: true}, Origin{marked: true, raw: true}); err != nil {
		t.Errorf("a new raw volume: %v", err)
	}
}
