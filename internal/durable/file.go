// Package durable replaces files so that a power cut leaves the whole old file or the whole new one.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file under a temporary name, and renames it to path. After Replace has returned nil, a power cut leaves the new content: it flushes
// the file before, and the folder after the rename (fsync(2)). After an error, path has the old content or the new.
func Replace(path string, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	err = errors.Join(err, temporary.Sync(), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder flushes which files a folder has, under which names.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
