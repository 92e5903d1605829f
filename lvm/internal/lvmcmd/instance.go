package lvmcmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// InstanceLock keeps two drivers from working on one node, as when an update starts the new one before the old one has ended:
// each would recover the other's unfinished volumes. The kernel releases it with the process.
type InstanceLock struct{ file *os.File }

func LockInstance(ctx context.Context, dir string) (*InstanceLock, error) {
	if dir == "" {
		return nil, nil
	}
	f, err := LockFile(ctx, filepath.Join(dir, "nodelvm.lock"))
	if err != nil {
		return nil, lvm.Errorf(lvm.KindOf(err), "another driver runs on this node: %w", err)
	}
	return &InstanceLock{f}, nil
}

// Release is idempotent.
func (l *InstanceLock) Release() {
	if l != nil {
		_ = l.file.Close()
	}
}

// CommandFiles make a driver wait for the commands of the previous one. A killed driver can leave an lvm process that is about
// to commit. So each command that writes to a group has the group's lock file open as its standard input. lvm never closes it,
// and never reads it, because of -y: the kernel keeps the lock until the last command ends.
type CommandFiles struct {
	Dir string // "": no lock files

	mu   sync.Mutex
	open map[lvm.VGName]*os.File // by group's name
}

// Acquire waits until no command of a previous driver works on the group. The error is ctx's, or the file system's.
func (c *CommandFiles) Acquire(ctx context.Context, group lvm.VGName) error {
	if c.Dir == "" || c.Of(group) != nil {
		return nil
	}
	f, err := LockFile(ctx, filepath.Join(c.Dir, "nodelvm-"+string(group)+".lock"))
	if err != nil {
		return lvm.Errorf(lvm.KindOf(err), "a command of the previous driver still runs on volume group %s: %w", group, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[group] != nil { // the driver has the group's lock; a second open file would conflict with it
		return f.Close()
	}
	if c.open == nil {
		c.open = map[lvm.VGName]*os.File{}
	}
	c.open[group] = f
	return nil
}

// Of is the lock file of a group; nil without Acquire.
func (c *CommandFiles) Of(group lvm.VGName) *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[group]
}

// Release releases all groups. Running commands keep their locks.
func (c *CommandFiles) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for group, f := range c.open {
		_ = f.Close()
		delete(c.open, group)
	}
}

// GroupOf is the group that a command names: its first positional argument is GROUP or GROUP/VOLUME.
func GroupOf(argv []string) lvm.VGName {
	for i, arg := range argv[:max(0, len(argv)-1)] {
		if arg == "--" {
			group, _, _ := strings.Cut(argv[i+1], "/")
			return lvm.VGName(group)
		}
	}
	return ""
}

// LockFile opens a file and waits for its lock. KindBusy: ctx ended first.
func LockFile(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "cannot open a lock file of this node's driver: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, lvm.Errorf(lvm.KindBusy, "it holds %s (%w)", path, fmt.Errorf("%w: %w", ctx.Err(), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}
