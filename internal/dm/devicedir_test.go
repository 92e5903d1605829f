package dm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// namesBelow lists the names below a folder.
func namesBelow(t *testing.T, dir string) (list []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if rest := strings.TrimPrefix(path, dir); rest != "" {
			list = append(list, rest[1:])
		}
		return err
	}))
	return list
}

// makeNames creates links, "NAME" or "NAME -> LINK".
func makeNames(t *testing.T, dir string, list ...string) {
	t.Helper()
	for _, name := range list {
		name, link, _ := strings.Cut(name+" -> nowhere", " -> ")
		link, _, _ = strings.Cut(link, " -> ")
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.Symlink(link, filepath.Join(dir, name)))
	}
}

// TestDeviceDirClear: Clear removes a group's names and no other group's, whatever the group's name.
func TestDeviceDirClear(t *testing.T) {
	all := []string{"mapper", "mapper/control", "mapper/vg--a-lv", "mapper/vg-a", "mapper/vg-a--b-tpool", "vg", "vg/a", "vg/a-b", "vg-a", "vg-a/lv"}
	for group, gone := range map[lvm.VGName][]string{
		"vg":     {"mapper/vg-a", "mapper/vg-a--b-tpool", "vg", "vg/a", "vg/a-b"},
		"vg-a":   {"mapper/vg--a-lv", "vg-a", "vg-a/lv"},
		"other":  nil,
		"":       nil,
		"mapper": nil,
		"..":     nil,
		".":      nil,
	} {
		dir := DeviceDir{filepath.Join(t.TempDir(), "dev")}
		makeNames(t, dir.Path, slices.DeleteFunc(slices.Clone(all), func(name string) bool {
			return slices.Contains([]string{"mapper", "vg", "vg-a"}, name)
		})...)
		must(t, dir.Clear(group))
		want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(gone, name) })
		if left := namesBelow(t, dir.Path); !slices.Equal(left, want) {
			t.Errorf("of group %q there is %q, want %q", group, left, want)
		}
	}
	must(t, DeviceDir{filepath.Join(t.TempDir(), "dev")}.Clear("vg"))
}

// TestRemoveNamesOf: of a removed volume, RemoveNamesOf removes lvm's names that lead to no device or to another volume's. It
// leaves udev's names to udev.
func TestRemoveNamesOf(t *testing.T) {
	root := t.TempDir()
	k := Kernel{Sys: filepath.Join(root, "sys"), Dev: filepath.Join(root, "dev")}
	mapper := func(name string) string { return filepath.Join(k.Dev, "mapper", name) }
	makeNames(t, k.Dev, "vg-x/gone -> "+mapper("vg--x-gone"), "vg-x/udevs -> ../dm-9", "vg-x/other -> "+mapper("vg--x-other"), "vg-y/last -> "+mapper("vg--y-last"),
		"mapper/vg--x-leg -> "+mapper("vg--x-leg2"), "mapper/vg--x-udevs -> ../dm-9")
	for _, c := range []struct {
		group  lvm.VGName
		lv     string
		hidden []string
		want   []string
	}{
		{"vg-x", "gone", []string{"vg--x-leg", "vg--x-never"}, []string{"vg-x/gone"}},
		{"vg-x", "udevs", nil, nil},
		{"vg-x", "never", nil, nil},
		{"vg-y", "last", nil, []string{"vg-y/last"}},
		{"vg-z", "never", nil, nil},
	} {
		before := namesBelow(t, k.Dev)
		removed, err := k.RemoveNamesOf(c.group, c.lv, c.hidden)
		must(t, err)
		for i := range removed {
			removed[i] = strings.TrimPrefix(removed[i], k.Dev+"/")
		}
		if !slices.Equal(removed, c.want) {
			t.Errorf("of %s/%s, %q were removed, want %q", c.group, c.lv, removed, c.want)
		}
		want := slices.DeleteFunc(before, func(name string) bool { return slices.Contains(c.want, name) || c.group == "vg-y" && name == "vg-y" })
		if left := namesBelow(t, k.Dev); !slices.Equal(left, want) {
			t.Errorf("of %s/%s, left is %q, want %q", c.group, c.lv, left, want)
		}
	}
}
