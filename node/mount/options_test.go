package mount

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestMountOptions(t *testing.T) {
	for fsType, lists := range map[string][]string{
		"ext4": {
			"noatime", "nodiratime,relatime", "lazytime", "nobarrier", "barrier=0", "commit=30", "data=writeback", "errors=remount-ro", "discard",
			"ro", "nosuid,nodev,noexec", "stripe=16", "init_itable=0", "usrquota,grpquota", "usrjquota=aquota.user,jqfmt=vfsv1", "dax=inode",
			`context="system_u:object_r:container_file_t:s0:c0,c1"`, "context=system_u:object_r:container_file_t:s0", "dirsync",
		},
		"xfs":   {"inode64", "logbsize=256k,logbufs=8", "allocsize=1m", "nouuid", "pquota", "largeio,swalloc", "sunit=128,swidth=512"},
		"btrfs": {"compress=zstd:3", "compress-force", "autodefrag", "space_cache=v2", "ssd,discard=async", "commit=120", "nodatacow", "max_inline=2k"},
	} {
		if err := CheckOptions(fsType, lists); err != nil {
			t.Error(err)
		}
	}
}

// TestMountOptionsRefuse: nothing that names a device or a path of the node, turns the mount into another operation, or lets
// one volume's error stop the node.
func TestMountOptionsRefuse(t *testing.T) {
	for _, test := range []struct{ fsType, option string }{
		{"ext4", "journal_path=/dev/sda"}, {"ext4", "journal_dev=0x800"}, {"ext4", "sb=8193"}, {"ext4", "errors=panic"}, {"ext4", "noload"},
		{"ext4", "norecovery"}, {"ext4", "abort"}, {"ext4", "usrjquota=/etc/passwd"}, {"ext4", "data=ordered;"}, {"ext4", "commit=-1"},
		{"xfs", "logdev=/dev/sda"}, {"xfs", "rtdev=/dev/sda"}, {"xfs", "norecovery"}, {"xfs", "data=journal"}, {"xfs", "nobarrier"},
		{"btrfs", "device=/dev/sda"}, {"btrfs", "degraded"}, {"btrfs", "subvol=/x"}, {"btrfs", "subvolid=5"}, {"btrfs", "rescue=all"},
		{"btrfs", "fatal_errors=panic"}, {"btrfs", "compress=lz4"},
		{"ext4", "bind"}, {"ext4", "rbind"}, {"ext4", "remount"}, {"ext4", "move"}, {"ext4", "loop"}, {"ext4", "loop=/dev/loop0"},
		{"ext4", "offset=4096"}, {"ext4", "X-mount.mkdir"}, {"ext4", "x-systemd.automount"}, {"ext4", "X-mount.owner=root"},
		{"ext4", "helper=x"}, {"ext4", "uhelper=x"}, {"ext4", "user"}, {"ext4", "shared"}, {"ext4", "private"}, {"ext4", "rslave"},
		{"ext4", ""}, {"ext4", "ro="}, {"ext4", "context="}, {"ext4", `context="a`}, {"ext4", `context=a"b`}, {"ext4", "noatime "}, {"ext4", "NOATIME"},
	} {
		for _, list := range [][]string{{test.option}, {"noatime," + test.option}, {"noatime", test.option}, {`context="a,b",` + test.option}} {
			err := CheckOptions(test.fsType, list)
			if err == nil || lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), "not allowed for "+test.fsType) {
				t.Errorf("%s %q: got %v", test.fsType, list, err)
			}
		}
	}
}

// TestMountOptionsThatSkipRecovery: the error names the reason, and that a read-only copy needs none of them.
func TestMountOptionsThatSkipRecovery(t *testing.T) {
	for _, option := range []string{"noload", "norecovery", "nologreplay"} {
		if err := CheckOptions("xfs", []string{"ro", "noatime," + option}); lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), "A read-only copy needs no such option") {
			t.Errorf("%s: %v", option, err)
		}
	}
}

func TestSplitMountOptions(t *testing.T) {
	got := SplitOptions([]string{"a,b", `context="c,d",e`, "f"})
	if want := []string{"a", "b", `context="c,d"`, "e", "f"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
