package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cacheDir returns the folder of built artifacts. It is outside the checkout, so that a fresh clone can use them.
func cacheDir() (string, error) {
	if dir := os.Getenv("NODELVM_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "nodelvm"), err
}

// artifact returns the cache's folder for kind and key, a digest of all inputs. If there is none, build fills a new one. A build
// that fails or is killed leaves no folder under the key.
func (l *Lab) artifact(ctx context.Context, kind, key string, build func(dir string) error) (string, error) {
	parent := filepath.Join(l.cache, kind)
	dir := filepath.Join(parent, key)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(ctx, filepath.Join(parent, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err == nil { // mark it as used
		return dir, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	unfinished := filepath.Join(parent, ".unfinished")
	if err := errors.Join(os.RemoveAll(unfinished), os.Mkdir(unfinished, 0o755)); err != nil {
		return "", err
	}
	if err := build(unfinished); err != nil {
		return "", err
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return "", err
	}
	return dir, pruneOld(parent, 3)
}

// pruneOld removes all folders in parent except the most recently used ones.
func pruneOld(parent string, keep int) error {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	type used struct {
		path string
		at   time.Time
	}
	var all []used
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			all = append(all, used{filepath.Join(parent, e.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b used) int { return cmp.Compare(b.at.UnixNano(), a.at.UnixNano()) })
	for i := keep; i < len(all); i++ {
		if err := os.RemoveAll(all[i].path); err != nil {
			return err
		}
	}
	return nil
}

// lockFile acquires an exclusive lock, and waits for its holder. The kernel releases the lock when this process ends.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("another lab command holds %s: %w", path, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// tool runs a program of a build and waits for it; its output goes to the log with the given name. The program has the lab's
// buildMark, so that Down can kill it and its children if this process dies meanwhile.
func (l *Lab) tool(ctx context.Context, name string, argv ...string) error {
	return l.toolIn(ctx, name, "", nil, argv...)
}

// toolIn is tool in the folder dir, with env in addition to this process's environment.
func (l *Lab) toolIn(ctx context.Context, name, dir string, env []string, argv ...string) error {
	log, err := os.OpenFile(l.logFile(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), env...), l.buildMark())
	cmd.Stdout, cmd.Stderr = log, log
	killGroup(cmd)
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return l.logged(name, fmt.Errorf("%s: %w", argv[0], err))
	}
	return nil
}

const buildMarkKey = "NODELVM_LAB_BUILD"

// buildMark returns the environment variable that every process of this lab's builds has.
func (l *Lab) buildMark() string { return buildMarkKey + "=" + l.dir }
