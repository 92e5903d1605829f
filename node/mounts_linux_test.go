package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// TestMountTableOfOldKernels: a kernel before 5.8 may leave out lines while others mount, so its table counts only when two
// readings agree.
func TestMountTableOfOldKernels(t *testing.T) {
	table := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(table, []byte("36 35 98:0 / /mnt rw,noatime shared:1 - ext4 /dev/root rw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := kernelVersion{5, 7}
	mounts, err := readMountTable(table, old, nil)
	if err != nil || len(mounts) != 1 || mounts[0].Mountpoint != "/mnt" {
		t.Errorf("got %v, %v", mounts, err)
	}
	const another = "/proc/sys/kernel/random/uuid" // another text each time
	if mounts, err := readMountTable(another, old, nil); err == nil {
		t.Errorf("a table that is never the same twice: %v", mounts)
	}
	mounts, err = readMountTable(another, kernelVersion{5, 8}, mountinfo.SingleEntryFilter("/proc"))
	if err != nil || len(mounts) != 1 {
		t.Errorf("of this kernel: %v, %v", mounts, err)
	}
}
