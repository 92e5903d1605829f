package iolimit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// Config says where the node's cgroups are.
type Config struct {
	Dir string // where this process sees the root of the node's cgroup v2
	// OwnPod is the UID of the driver's own pod, whose cgroup shows where those of the other pods are. "": it runs in none, and the first
	// cgroup that has the kubelet's name for the cgroup of all pods is that.
	OwnPod string
	Write  func(file, text string) error // nil: writes to the kernel's file, which must exist
}

// cgroups are the cgroups of this node's pods.
type cgroups struct {
	Config
	mu   sync.Mutex
	pods string // the cgroup of all pods; "": not found yet
}

func (c *cgroups) check() error {
	pods, err := c.podsDir()
	if err != nil {
		return err
	}
	return c.enable(pods)
}

// errNoCgroup is lvm.KindNotFound: the pod has no cgroup (yet, or any more).
func errNoCgroup(pod, pods string) error {
	return lvm.Errorf(lvm.KindNotFound, "the kubelet has made no cgroup for the pod with the UID %s below %s", pod, pods)
}

// dirOf returns the folder of a pod's cgroup; lvm.KindNotFound: it has none. lvm.KindConflict: the cgroups of pods cannot be found.
func (c *cgroups) dirOf(pod string) (string, error) {
	pods, err := c.podsDir()
	if err != nil {
		return "", err
	}
	for _, dir := range podDirs(pods, pod) {
		if isDir(dir) {
			return dir, nil
		}
	}
	return "", errNoCgroup(pod, c.name(pods))
}

func isDir(path string) bool {
	var stat unix.Stat_t
	return unix.Lstat(path, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFDIR
}

// name is a cgroup's name, as /proc/PID/cgroup shows it.
func (c *cgroups) name(dir string) string {
	return "/" + strings.TrimPrefix(strings.TrimPrefix(dir, c.Dir), "/")
}

// podsDir returns the folder of the cgroup of all pods. It remembers it while it exists.
func (c *cgroups) podsDir() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods != "" && isDir(c.pods) {
		return c.pods, nil
	}
	found, err := c.find()
	c.pods = found
	return found, err
}

// Bounds of the search for the cgroup of all pods.
const (
	searchDepth = 5
	searchDirs  = 20000
)

// find searches the cgroup of all pods, from the root down. It never enters one: a pod with rights to its own cgroup can make cgroups
// of any name there.
func (c *cgroups) find() (string, error) {
	if _, err := os.Stat(filepath.Join(c.Dir, "cgroup.controllers")); err != nil {
		return "", lvm.Errorf(lvm.KindConflict, "I/O limits need cgroup v2, and %s of this node is no mount of it: %w", c.Dir, err)
	}
	level, seen := []string{c.Dir}, 0
	for range searchDepth {
		var below []string
		for _, dir := range level {
			entries, err := os.ReadDir(dir)
			if err != nil {
				continue // it was removed
			}
			for _, e := range entries {
				path := filepath.Join(dir, e.Name())
				switch {
				case !e.IsDir():
				case !isOfPods(e.Name()):
					below = append(below, path)
				case c.OwnPod == "" || slices.ContainsFunc(podDirs(path, c.OwnPod), isDir):
					return path, nil
				}
			}
		}
		if seen += len(below); seen > searchDirs {
			break
		}
		level = below
	}
	if c.OwnPod != "" {
		return "", lvm.Errorf(lvm.KindConflict, "no cgroup kubepods or kubepods.slice with the driver's own pod (UID %s) is below %s of this node: I/O limits need a kubelet with cgroupsPerQOS: true", c.OwnPod, c.Dir)
	}
	return "", lvm.Errorf(lvm.KindConflict, "no cgroup kubepods or kubepods.slice is below %s of this node: I/O limits need a kubelet with cgroupsPerQOS: true", c.Dir)
}

const (
	controller     = "io"
	controllers    = "cgroup.controllers"
	subtreeControl = "cgroup.subtree_control"
	ioMax          = "io.max"
)

// enable makes sure that the children of a cgroup have the io controller, which each cgroup on the way must pass on. The kubelet does the
// same when it makes a cgroup (opencontainers/cgroups, fs2.CreateCgroupPath), and systemd for units with IOAccounting. It changes nothing
// for processes: without limits and weights the controller only counts.
func (c *cgroups) enable(dir string) error {
	below := strings.Split(strings.Trim(strings.TrimPrefix(dir, c.Dir), "/"), "/")
	at := c.Dir
	for i := 0; ; i++ {
		if err := c.passOn(at); err != nil {
			return err
		}
		if i == len(below) || below[i] == "" {
			return nil
		}
		at = filepath.Join(at, below[i])
	}
}

// passOn enables the io controller for the children of one cgroup.
func (c *cgroups) passOn(dir string) error {
	has := func(file string) (bool, error) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		return slices.Contains(strings.Fields(string(text)), controller), err
	}
	if enabled, err := has(subtreeControl); err != nil || enabled {
		return c.explain(dir, err)
	}
	switch available, err := has(controllers); {
	case err != nil:
		return c.explain(dir, err)
	case !available:
		return lvm.Errorf(lvm.KindConflict, "the cgroup %s of this node does not have the io controller, which I/O limits need: the kernel or what runs the node does not give it (cgroup.controllers)", c.name(dir))
	}
	return c.explain(dir, c.Write(filepath.Join(dir, subtreeControl), "+"+controller))
}

// explain returns an error for a cgroup that does not pass on the io controller.
func (c *cgroups) explain(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		return lvm.Errorf(lvm.KindNotFound, "the cgroup %s of this node is gone: %w", c.name(dir), err)
	case errors.Is(err, unix.EBUSY):
		return lvm.Errorf(lvm.KindConflict, "the cgroup %s of this node cannot pass on the io controller, which I/O limits need, because processes are in it (cgroup.procs): %w", c.name(dir), err)
	}
	return lvm.Errorf(lvm.KindConflict, "the cgroup %s of this node cannot pass on the io controller, which I/O limits need: %w", c.name(dir), err)
}

// limitsIn returns the limits in a cgroup, by device.
func (c *cgroups) limitsIn(dir string) (map[uint64]lvm.Rates, error) {
	text, err := os.ReadFile(filepath.Join(dir, ioMax))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // without the io controller nothing is limited
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the I/O limits of the cgroup %s: %w", c.name(dir), err)
	}
	return parseMax(string(text)), nil
}

// set writes the limits of a device to a cgroup.
func (c *cgroups) set(dir string, device uint64, r lvm.Rates) error {
	write := func() error { return c.Write(filepath.Join(dir, ioMax), line(device, r)) }
	err := write()
	if errors.Is(err, fs.ErrNotExist) && (r != lvm.Rates{}) {
		if err := c.enable(filepath.Dir(dir)); err != nil {
			return err
		}
		err = write()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENODEV), !isDir(dir):
		return lvm.Errorf(lvm.KindNotFound, "the device %s or the cgroup %s is gone: %w", number(device), c.name(dir), err)
	case errors.Is(err, fs.ErrNotExist) && r == lvm.Rates{}:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return lvm.Errorf(lvm.KindConflict, "the cgroup %s has the io controller and no io.max: the node's kernel cannot limit I/O (CONFIG_BLK_DEV_THROTTLING)", c.name(dir))
	}
	return lvm.Errorf(lvm.KindConflict, "the kernel refuses %q in io.max of the cgroup %s: %w", line(device, r), c.name(dir), err)
}

// writeOnce writes with one write(2), as the kernel requires, and never creates the file.
func writeOnce(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}
