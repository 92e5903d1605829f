package dm

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// Modules finds kernel modules without a process.
type Modules struct {
	Sys     string // mount point of sysfs
	Dir     string // /lib/modules
	Release string // of the kernel that runs (uname -r)
}

// ModuleSet has the names of modules, with hyphens: "dm-thin-pool".
type ModuleSet struct {
	sys      string
	builtin  map[string]bool
	loadable map[string]bool // with a file
}

// Read reads modules.builtin and modules.dep (modules.dep(5)) of the kernel that runs. A missing list is empty: a kernel without loadable
// modules has none.
func (m Modules) Read() (ModuleSet, error) {
	dir := filepath.Join(m.Dir, m.Release)
	builtin, err := moduleList(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return ModuleSet{}, err
	}
	files, err := moduleList(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return ModuleSet{}, err
	}
	set := ModuleSet{sys: m.Sys, builtin: map[string]bool{}, loadable: map[string]bool{}}
	for name := range builtin {
		set.builtin[name] = true
	}
	for name, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(dir, file)
		}
		if strings.HasPrefix(name, "dm-") { // thousands of others
			_, err := os.Stat(file)
			set.loadable[name] = err == nil
		}
	}
	return set, nil
}

// IsLoaded reports whether the kernel has the module, loaded or built in.
func (s ModuleSet) IsLoaded(name string) bool {
	_, err := os.Stat(filepath.Join(s.sys, "module", strings.ReplaceAll(name, "-", "_")))
	return err == nil || s.builtin[name]
}

// IsLoadable reports whether a device-mapper module has a file. The kernel may refuse it, for example for its signature.
func (s ModuleSet) IsLoadable(name string) bool { return s.loadable[name] }

// HasFiles reports whether any device-mapper module has a file.
func (s ModuleSet) HasFiles() bool { return len(s.loadable) > 0 }

// moduleList reads the files, by module name, in modules.builtin or modules.dep: `kernel/drivers/md/dm-raid.ko.xz: ...`.
func moduleList(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	files := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		file, _, _ := strings.Cut(lines.Text(), ":")
		name, _, _ := strings.Cut(filepath.Base(file), ".ko")
		files[strings.ReplaceAll(name, "_", "-")] = file
	}
	return files, nil
}

// TargetStates asks device-mapper which targets the kernel has, and looks for the files of the other modules. A container may lack
// /lib/modules: then the kernel itself tries to load the module from the host's.
func (k Kernel) TargetStates(names []string, load bool) (map[string]lvm.TargetState, error) {
	present, err := k.Control().Targets()
	if err != nil {
		return nil, err
	}
	states := map[string]lvm.TargetState{}
	var absent []string
	for _, name := range names {
		if present[name] {
			states[name] = lvm.TargetPresent
			continue
		}
		absent = append(absent, name)
	}
	if len(absent) == 0 {
		return states, nil
	}
	var release unix.Utsname
	if err := unix.Uname(&release); err != nil {
		return nil, err
	}
	modules, err := Modules{Sys: k.Sys, Dir: "/lib/modules", Release: unix.ByteSliceToString(release.Release[:])}.Read()
	if err != nil {
		return nil, err
	}
	for _, name := range absent {
		switch {
		case (load || !modules.HasFiles()) && k.Control().LoadTarget(name) == nil:
			states[name] = lvm.TargetPresent
		case modules.IsLoadable("dm-" + name):
			states[name] = lvm.TargetLoadable
		default:
			states[name] = lvm.TargetMissing
		}
	}
	return states, nil
}
