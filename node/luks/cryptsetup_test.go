package luks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm/tail"
)

// TestOutputOfCryptsetupIsBounded: the driver keeps the end of what cryptsetup prints.
func TestOutputOfCryptsetupIsBounded(t *testing.T) {
	dir := t.TempDir()
	const much = "#!/bin/sh\ni=0; while [ $i -lt 1000 ]; do echo \"line $i of many\"; i=$((i+1)); done; echo the reason >&2; exit 1\n"
	must(t, os.WriteFile(filepath.Join(dir, "cryptsetup"), []byte(much), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	lock, err := os.Create(filepath.Join(dir, "lock"))
	must(t, err)
	defer func() { _ = lock.Close() }()
	err = linux{}.cryptsetup(t.Context(), lock, []string{"open", "/dev/dm-3"})
	if err == nil || !strings.HasSuffix(err.Error(), "the reason") || len(err.Error()) > tail.Size+200 {
		t.Errorf("%.200v", err)
	}
}

func TestSectorSize(t *testing.T) {
	for _, test := range []struct {
		block         bool
		logical, want int
	}{{false, 512, 4096}, {false, 4096, 4096}, {true, 512, 512}, {true, 4096, 4096}} {
		if got := sectorSize(test.block, test.logical); got != test.want {
			t.Errorf("sectorSize(%t, %d) = %d, want %d", test.block, test.logical, got, test.want)
		}
	}
}
