package node

import (
	"fmt"

	"golang.org/x/sys/unix"
)

func (machine) Sync(m MountedFileSystem) error {
	fd, err := openMount(m)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written through it
	if err := unix.Syncfs(fd); err != nil {
		return fmt.Errorf("cannot write the data of the file system at %s: %w", m.Path, err)
	}
	return nil
}
