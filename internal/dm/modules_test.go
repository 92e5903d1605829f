package dm

import (
	"os"
	"path/filepath"
	"testing"
)

// write writes a file below dir.
func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o750))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestModules: a module is loaded, built in, or has a file. A list may name a file that is not there.
func TestModules(t *testing.T) {
	dir := t.TempDir()
	m := Modules{Sys: filepath.Join(dir, "sys"), Dir: filepath.Join(dir, "modules"), Release: "6.1"}
	read := func() ModuleSet {
		t.Helper()
		set, err := m.Read()
		must(t, err)
		return set
	}
	if set := read(); set.IsLoaded("dm-mod") || set.IsLoadable("dm-raid") || set.HasFiles() {
		t.Error("an empty node has modules")
	}
	write(t, m.Dir, "6.1/modules.builtin", "kernel/drivers/md/dm-mod.ko\n")
	write(t, m.Dir, "6.1/modules.dep", "kernel/drivers/md/dm_thin_pool.ko.xz: kernel/drivers/md/dm-bufio.ko.xz\nkernel/drivers/md/dm-raid1.ko:\n"+
		"kernel/drivers/md/dm-crypt.ko:\n"+filepath.Join(dir, "elsewhere/dm-cache.ko")+":\n")
	write(t, m.Dir, "6.1/kernel/drivers/md/dm_thin_pool.ko.xz", "")
	write(t, m.Dir, "6.1/kernel/drivers/md/dm-raid1.ko", "")
	write(t, dir, "elsewhere/dm-cache.ko", "")
	write(t, m.Sys, "module/dm_verity/refcnt", "0\n")
	set := read()
	for name, want := range map[string][2]bool{
		"dm-mod": {true, false}, "dm-thin-pool": {false, true}, "dm-raid1": {false, true}, "dm-raid": {false, false},
		"dm-crypt": {false, false}, "dm-cache": {false, true}, "dm-verity": {true, false},
	} {
		if got := [2]bool{set.IsLoaded(name), set.IsLoadable(name)}; got != want {
			t.Errorf("%s is loaded, loadable: %v, want %v", name, got, want)
		}
	}
	if !set.HasFiles() {
		t.Error("no module has a file")
	}
}
