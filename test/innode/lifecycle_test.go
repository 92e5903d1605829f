//go:build innode

package innode

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// write puts a file with this text onto the disk, as a database does.
func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_SYNC, 0o600)
	must(t, err)
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	must(t, f.Close())
}

func reads(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s reads %q, %v; want %q", path, text, err, want)
	}
}

// holds fails unless the mounted file system has at least so many bytes, less what its own tables take.
func holds(t *testing.T, path string, size int64) {
	t.Helper()
	var s unix.Statfs_t
	must(t, unix.Statfs(path, &s))
	if total := int64(s.Blocks) * s.Bsize; total < size*7/10 {
		t.Errorf("the file system at %s has %d bytes, the volume %d", path, total, size)
	}
}
