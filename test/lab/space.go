package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Free space that a lab needs, measured with `make demo` and `make test` on empty caches: buildSpace for the built artifacts and
// Go's build cache, runSpace for the nodes' disks, etcd and the logs.
const (
	buildSpace = 14 * gib
	runSpace   = 6 * gib
)

// checkSpace fails if the file systems of the lab's folder and of the cache lack space. A full disk would stop etcd and the nodes
// without a message.
func (l *Lab) checkSpace(controlPlane bool) error {
	if err := os.MkdirAll(l.cache, 0o755); err != nil {
		return err
	}
	needs := []spaceNeed{{what: "the nodes' disks, etcd and the logs", dir: l.dir, bytes: runSpace}}
	if !l.built(controlPlane) {
		needs = append(needs, spaceNeed{what: "what is compiled once", dir: l.cache, bytes: buildSpace})
	}
	return enoughSpace(needs, freeSpace)
}

// built reports whether the cache has what a lab boots from, in any version.
func (l *Lab) built(controlPlane bool) bool {
	kinds := []string{"kernel", "root"}
	if controlPlane {
		kinds = append(kinds, "bin-kubernetes", "golden")
	}
	for _, kind := range kinds {
		found, err := filepath.Glob(filepath.Join(l.cache, kind, "*"))
		if err != nil || len(found) == 0 {
			return false
		}
	}
	return true
}

// spaceNeed is an amount of space that must be free on the file system of dir.
type spaceNeed struct {
	what  string
	dir   string
	bytes int64
}

// enoughSpace adds up the needs of each file system and compares them with the free space that free returns.
func enoughSpace(needs []spaceNeed, free func(dir string) (filesystem uint64, bytes int64, err error)) error {
	wanted := map[uint64]int64{}
	for _, n := range needs {
		filesystem, have, err := free(n.dir)
		if err != nil {
			return fmt.Errorf("free space in %s: %w", n.dir, err)
		}
		wanted[filesystem] += n.bytes
		if want := wanted[filesystem]; have < want {
			return fmt.Errorf("the file system of %s has %.1f GiB free; %s needs %.0f GiB of it: free some space, or name another folder with NODELVM_CACHE and NODELVM_LAB",
				n.dir, float64(have)/gib, n.what, float64(want)/gib)
		}
	}
	return nil
}

// freeSpace returns the number of dir's file system and the bytes that root can still write to it. The folder must exist.
func freeSpace(dir string) (filesystem uint64, bytes int64, err error) {
	var stat unix.Stat_t
	if err := unix.Stat(dir, &stat); err != nil {
		return 0, 0, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return stat.Dev, int64(fs.Bfree) * fs.Bsize, nil
}
