package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/tail"
)

// TestOutputOfToolsIsBounded: tools print as much as a volume's content makes them. The driver keeps only the end of it.
func TestOutputOfToolsIsBounded(t *testing.T) {
	dir := t.TempDir()
	const much = "#!/bin/sh\ni=0; while [ $i -lt 40000 ]; do echo \"Clearing orphaned inode $i (uid=0, gid=0, mode=0100644, size=4096)\"; i=$((i+1)); done; echo \"$0: the reason\" >&2; exit 4\n"
	for _, name := range []string{"fsck.ext4", "resize2fs", "blkid"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(much), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	m := newMachine()
	check := m.Fsck(t.Context(), "/dev/dm-3", "ext4")
	if lvm.KindOf(check) != lvm.KindConflict {
		t.Errorf("the check has left errors: %.200v", check)
	}
	_, probe := m.blkid(t.Context(), "/dev/dm-3")
	for name, err := range map[string]error{"fsck.ext4": check, "resize2fs": m.Resize("/dev/dm-3", "/target", "ext4"), "blkid": probe} {
		if err == nil || !strings.HasSuffix(err.Error(), name+": the reason") || len(err.Error()) > tail.Size+500 {
			t.Errorf("%s: an error of %d bytes: %.200v", name, len(err.Error()), err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "blkid"), []byte(strings.Replace(much, "exit 4", "exit 0", 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := m.stdout(t.Context(), "blkid"); err == nil || len(out) > 0 {
		t.Errorf("a list without an end: %d bytes, %v", len(out), err)
	}
}
