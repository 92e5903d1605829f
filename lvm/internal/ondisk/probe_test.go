package ondisk

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestErrorInWords: a medium error, which NVMe and SCSI disks report for a sector that they cannot read, does not read as if the disk were empty.
func TestErrorInWords(t *testing.T) {
	if err := inWords(unix.ENODATA); !strings.Contains(err.Error(), "medium error") || !errors.Is(err, unix.ENODATA) {
		t.Errorf("a medium error: %v", err)
	}
	if err := inWords(unix.EIO); !errors.Is(err, unix.EIO) || err.Error() != unix.EIO.Error() {
		t.Errorf("an I/O error: %v", err)
	}
}
