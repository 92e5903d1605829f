package dm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// namesBelow lists the names below a folder.
func namesBelow(t *testing.T, dir string) (list []string) {
	t.Helper()
	fixture.Must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
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
		fixture.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		fixture.Must(t, os.Symlink(link, filepath.Join(dir, name)))
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
		fixture.Must(t, dir.Clear(group))
		want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(gone, name) })
		if left := namesBelow(t, dir.Path); !slices.Equal(left, want) {
			t.Errorf("of group %q there is %q, want %q", group, left, want)
		}
	}
	fixture.Must(t, DeviceDir{filepath.Join(t.TempDir(), "dev")}.Clear("vg"))
}

func TestStaleName(t *testing.T) {
	ours := func(uuid string) bool { return uuid == "ours" }
	for name, c := range map[string]struct {
		deviceName
		stale bool
	}{
		"something else":                       {deviceName{}, false},
		"a link to no device":                  {deviceName{mapper: true}, true},
		"a node of no device":                  {deviceName{mapper: true, node: true}, true},
		"a link to its volume":                 {deviceName{mapper: true, there: true, name: "vg-a", uuid: "ours"}, false},
		"a link to another volume":             {deviceName{mapper: true, there: true, name: "vg-b", uuid: "ours"}, true},
		"a node of another volume":             {deviceName{mapper: true, there: true, node: true, name: "vg-b", uuid: "theirs"}, true},
		"a node of its volume, ours":           {deviceName{mapper: true, there: true, node: true, name: "vg-a", uuid: "ours"}, true},
		"a node of its volume, made elsewhere": {deviceName{mapper: true, there: true, node: true, name: "vg-a", uuid: "theirs"}, false},
	} {
		if got := c.deviceName.stale("vg-a", ours); got != c.stale {
			t.Errorf("%s: stale %v", name, got)
		}
	}
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
		fixture.Must(t, err)
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

// TestRemoveStaleNames: RemoveStaleNames removes links that lead to no device or to another one, and no other link.
func TestRemoveStaleNames(t *testing.T) {
	root := t.TempDir()
	k := Kernel{Sys: filepath.Join(root, "sys"), Dev: filepath.Join(root, "dev")}
	for number, name := range map[string]string{"dm-0": "vg--x-a", "dm-1": "vg--x-b", "dm-2": "luks"} {
		for file, text := range map[string]string{"name": name, "uuid": "LVM-" + name} {
			path := filepath.Join(k.Sys, "block", number, "dm", file)
			fixture.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
			fixture.Must(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		}
	}
	stay := []string{
		"mapper/control -> ../misc/control", "mapper/luks -> ../dm-9", "mapper/vg--x-a -> ../dm-0", "mapper/vg--x-odd -> ../sda",
		"mapper/vg-x--a -> ../dm-9", "mapper/vg--x--y-a -> ../dm-9", "vg-x/a -> ../dm-0", "vg-x/link -> ../mapper/luks", "vg-x/disk -> /dev/sda", "vg/x -> ../dm-9",
	}
	gone := []string{
		"mapper/vg--x-old -> ../dm-1", "mapper/vg--x-pool_tmeta -> ../dm-2", "mapper/vg--x-c -> ../dm-9", "vg-x/c -> " + k.Dev + "/mapper/vg--x-c",
		"vg-x/old -> ../dm-1", "vg-x/older -> " + k.Dev + "/dm-9", "vg-x/never -> " + k.Dev + "/mapper/vg--x-never",
	}
	makeNames(t, k.Dev, append(slices.Clone(stay), gone...)...)
	makeNames(t, k.Dev, "vg-gone/a -> ../dm-9")
	removed, err := k.RemoveStaleNames("vg-x", func(string) bool { return true })
	fixture.Must(t, err)
	var want []string
	for _, name := range gone {
		name, _, _ = strings.Cut(name, " -> ")
		want = append(want, filepath.Join(k.Dev, name))
	}
	slices.Sort(removed)
	slices.Sort(want)
	if !slices.Equal(removed, want) {
		t.Errorf("removed were %q, want %q", removed, want)
	}
	for _, name := range stay {
		name, _, _ = strings.Cut(name, " -> ")
		if _, err := os.Lstat(filepath.Join(k.Dev, name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := k.RemoveStaleNames("vg-gone", func(string) bool { return false }); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(k.Dev, "vg-gone")); err == nil {
		t.Error("a folder whose names are all gone stays, and vgrename to its name fails")
	}
}
