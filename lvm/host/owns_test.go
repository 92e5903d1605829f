package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// TestOwns: device-mapper tells which volume a device belongs to; the test has no readable disks.
func TestOwns(t *testing.T) {
	k := ondisk.Kernel{Kernel: dm.Kernel{Sys: t.TempDir(), Dev: t.TempDir()}}
	id := lvm.ID{VG: "AAAAAA-bbbb-CCCC-dddd-EEEE-ffff-GGGGGG", LV: "pvc-1"}
	lv, vg := strings.Repeat("l", 32), strings.ReplaceAll(string(id.VG), "-", "")
	for number, mapping := range map[string][2]string{
		"253:1": {"LVM-" + vg + lv, "vg--a-pvc--1"},
		"253:2": {"LVM-" + vg + lv, "vg--a-pvc--2"},
		"253:3": {"LVM-" + vg + lv + "-tpool", "vg--a-pvc--1"},
		"253:4": {"LVM-" + strings.Repeat("x", 32) + lv, "vg--a-pvc--1"},
		"253:5": {"CRYPT-LUKS2-b", "vg--a-pvc--1"},
		"253:6": {"LVM-" + vg + lv, "vg--a--pvc-1"}, // group "vg-a-pvc", volume "1"
		"8:0":   {},
	} {
		dir := filepath.Join(k.Sys, "dev/block", number)
		fixture.Must(t, os.MkdirAll(filepath.Join(dir, "dm"), 0o755))
		for i, file := range []string{"uuid", "name"} {
			if mapping[i] != "" {
				fixture.Must(t, os.WriteFile(filepath.Join(dir, "dm", file), []byte(mapping[i]+"\n"), 0o644))
			}
		}
	}
	h := NewHostOn(lvm.Config{}, lvm.Machine{Kernel: k})
	for _, test := range []struct {
		what         string
		major, minor uint32
		want         bool
	}{
		{"the volume", 253, 1, true},
		{"another volume of the group", 253, 2, false},
		{"a hidden layer", 253, 3, false},
		{"the same name in another group", 253, 4, false},
		{"a device of another kind", 253, 5, false},
		{"a volume whose group's name ends like it", 253, 6, false},
		{"a disk", 8, 0, false},
		{"a removed device", 253, 99, true},
		{"a file system without a device", 0, 45, false},
	} {
		if got, err := h.Owns(t.Context(), id, unix.Mkdev(test.major, test.minor)); err != nil || got != test.want {
			t.Errorf("%s: %v, %v", test.what, got, err)
		}
	}
}
