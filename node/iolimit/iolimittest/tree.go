// Package iolimittest has a fake of the kernel's cgroup v2: a folder with the files that package iolimit reads, and what a write to them
// does (Linux, Documentation/admin-guide/cgroup-v2.rst).
package iolimittest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Tree is a cgroup v2.
type Tree struct {
	Dir string

	mu     sync.Mutex
	writes []string
	gone   map[string]bool // devices that the kernel does not have, "253:9"
	during func(file, text string)
}

// New makes a tree in an empty folder. Its root has the io controller and does not pass it on.
func New(dir string) (*Tree, error) {
	t := &Tree{Dir: dir, gone: map[string]bool{}}
	return t, errors.Join(t.put("cgroup.controllers", "cpu io memory\n"), t.put("cgroup.subtree_control", "memory\n"))
}

func (t *Tree) put(file, text string) error {
	return os.WriteFile(filepath.Join(t.Dir, file), []byte(text), 0o600)
}

// Make makes a cgroup and its parents, as the kubelet does.
func (t *Tree) Make(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := ""
	for _, part := range strings.Split(strings.Trim(name, "/"), "/") {
		above := at
		at = filepath.Join(at, part)
		if os.Mkdir(filepath.Join(t.Dir, at), 0o700) != nil {
			continue
		}
		passed := t.has(filepath.Join(above, "cgroup.subtree_control"))
		available := "cpu memory\n"
		if passed {
			available = "cpu io memory\n"
		}
		if err := errors.Join(t.put(filepath.Join(at, "cgroup.controllers"), available), t.put(filepath.Join(at, "cgroup.subtree_control"), "memory\n")); err != nil {
			return err
		}
		if passed {
			if err := t.put(filepath.Join(at, "io.max"), ""); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Tree) has(file string) bool {
	text, err := os.ReadFile(filepath.Join(t.Dir, file))
	return err == nil && slices.Contains(strings.Fields(string(text)), "io")
}

// Remove removes a cgroup with all below it.
func (t *Tree) Remove(name string) error { return os.RemoveAll(filepath.Join(t.Dir, name)) }

// TakeAway disables the io controller for the children of a cgroup, as another program may; all limits below are lost.
func (t *Tree) TakeAway(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.put(filepath.Join(name, "cgroup.subtree_control"), "memory\n"); err != nil {
		return err
	}
	return t.belowOf(name, func(child string) error {
		return errors.Join(os.RemoveAll(filepath.Join(t.Dir, child, "io.max")), t.put(filepath.Join(child, "cgroup.controllers"), "cpu memory\n"),
			t.put(filepath.Join(child, "cgroup.subtree_control"), "memory\n"))
	})
}

// Withhold takes the io controller from the root, as a kernel without it.
func (t *Tree) Withhold() error { return t.put("cgroup.controllers", "cpu memory\n") }

func (t *Tree) belowOf(name string, do func(string) error) error {
	top := filepath.Join(t.Dir, name)
	return filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == top {
			return err
		}
		return do(strings.TrimPrefix(path, t.Dir+"/"))
	})
}

// During sets what runs in the middle of each write.
func (t *Tree) During(do func(file, text string)) { t.during = do }

// LoseDevice makes the kernel refuse a device's number, as "253:9".
func (t *Tree) LoseDevice(number string) { t.gone[number] = true }

// Max returns the lines of a cgroup's io.max, sorted.
func (t *Tree) Max(name string) []string {
	text, err := os.ReadFile(filepath.Join(t.Dir, name, "io.max"))
	if err != nil {
		return []string{err.(*os.PathError).Err.Error()} //nolint:errorlint // of os.ReadFile
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return slices.DeleteFunc(lines, func(l string) bool { return l == "" })
}

// Writes returns the writes since the last call, as "kubepods/io.max: 253:4 rbps=...".
func (t *Tree) Writes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	writes := t.writes
	t.writes = nil
	return writes
}

// Write is iolimit.Config.Write.
func (t *Tree) Write(file, text string) error {
	if t.during != nil {
		t.during(file, text)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	name := strings.TrimPrefix(file, t.Dir+"/")
	if _, err := os.Stat(file); err != nil {
		return err
	}
	t.writes = append(t.writes, name+": "+text)
	dir, attribute := filepath.Split(name)
	if attribute == "io.max" {
		return t.limit(name, text)
	}
	return t.enable(filepath.Clean(dir), text)
}

func (t *Tree) enable(dir, text string) error {
	switch {
	case text != "+io":
		return unix.EINVAL
	case !t.has(filepath.Join(dir, "cgroup.controllers")):
		return unix.ENOENT
	}
	if procs, _ := os.ReadFile(filepath.Join(t.Dir, dir, "cgroup.procs")); len(procs) > 0 {
		return unix.EBUSY
	}
	if err := t.put(filepath.Join(dir, "cgroup.subtree_control"), "io memory\n"); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(t.Dir, dir))
	for _, e := range entries {
		if e.IsDir() {
			child := filepath.Join(dir, e.Name())
			err = errors.Join(err, t.put(filepath.Join(child, "cgroup.controllers"), "cpu io memory\n"), t.put(filepath.Join(child, "io.max"), ""))
		}
	}
	return err
}

func (t *Tree) limit(file, text string) error {
	number, limits, _ := strings.Cut(text, " ")
	if t.gone[number] {
		return unix.ENODEV
	}
	old, err := os.ReadFile(filepath.Join(t.Dir, file))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(old)), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" || strings.HasPrefix(l, number+" ") })
	if limits != "rbps=max wbps=max riops=max wiops=max" {
		lines = append(lines, text)
	}
	slices.Sort(lines)
	return t.put(file, strings.Join(append(lines, ""), "\n"))
}
