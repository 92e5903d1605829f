package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestNewHostWritesConfig(t *testing.T) {
	dir := t.TempDir()
	cfg := lvm.Config{SystemDir: filepath.Join(dir, "a/etc"), LockDir: filepath.Join(dir, "lock"), BackupDir: filepath.Join(dir, "backup")}
	if _, err := NewHost(cfg); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(cfg.SystemDir, "lvm.conf"), cfg.LockDir, cfg.BackupDir} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	if _, err := NewHost(lvm.Config{}); lvm.KindOf(err) != lvm.KindInvalid {
		t.Errorf("without a directory for its configuration: %v", err)
	}
}
