package main

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// disks is the record of who has which disk.
type disks struct {
	mu     sync.Mutex
	record string
	all    []string
}

// taken is the disk of a volume or of a snapshot.
type taken struct {
	device string
	size   int64
	since  time.Time
}

// take gives a free disk to a name, with the content of the source, or with zeroes. A name that has a disk keeps it.
func (d *disks) take(name, source string) (taken, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if disk, err := d.find(name); status.Code(err) != codes.NotFound {
		return disk, err
	}
	from := taken{device: "/dev/zero"}
	if source != "" {
		var err error
		if from, err = d.find(source); err != nil {
			return taken{}, err
		}
	}
	used, err := filepath.Glob(filepath.Join(d.record, "*"))
	if err != nil {
		return taken{}, err
	}
	left := slices.DeleteFunc(slices.Clone(d.all), func(disk string) bool {
		return slices.ContainsFunc(used, func(link string) bool {
			device, err := os.Readlink(link)
			return err != nil || device == disk
		})
	})
	if len(left) == 0 {
		return taken{}, status.Error(codes.ResourceExhausted, "no disk is free")
	}
	if err := copyDisk(from.device, left[0]); err != nil {
		return taken{}, err
	}
	if err := os.Symlink(left[0], filepath.Join(d.record, name)); err != nil {
		return taken{}, err
	}
	return d.find(name)
}

// find returns the disk of a name.
func (d *disks) find(name string) (taken, error) {
	link := filepath.Join(d.record, name)
	info, err := os.Lstat(link)
	if errors.Is(err, fs.ErrNotExist) {
		return taken{}, status.Errorf(codes.NotFound, "%s has no disk", name)
	}
	if err != nil {
		return taken{}, err
	}
	device, err := os.Readlink(link)
	if err != nil {
		return taken{}, err
	}
	f, err := os.Open(device)
	if err != nil {
		return taken{}, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	return taken{device, size, info.ModTime()}, cmp.Or(err, f.Close())
}

// release takes the disk from a name.
func (d *disks) release(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return ignore(fs.ErrNotExist, os.Remove(filepath.Join(d.record, name)))
}

// ignore returns err unless it is a certain one.
func ignore(certain, err error) error {
	if errors.Is(err, certain) {
		return nil
	}
	return err
}

// copyDisk fills a disk.
func copyDisk(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_EXCL, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(ignore(syscall.ENOSPC, err), out.Sync(), out.Close()) // zeroes end with the disk
}
