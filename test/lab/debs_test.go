package lab

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// TestInstallationLock: a lab whose packages are installed does not wait for a program that installs others; one that lacks a package does.
func TestInstallationLock(t *testing.T) {
	l := &Lab{cache: t.TempDir()}
	there := filepath.Join(t.TempDir(), "there")
	must(t, os.WriteFile(there, nil, 0o600))
	unlock, err := lockFile(t.Context(), filepath.Join(l.cache, "install.lock"))
	must(t, err)
	defer unlock()
	gaveUp, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.installHostPackages(gaveUp, map[string]string{"there": there}); err != nil {
		t.Errorf("nothing is missing: %v", err)
	}
	if err := l.installHostPackages(gaveUp, map[string]string{"absent": there + "-not"}); err == nil {
		t.Error("a package is missing, and the lab did not wait for the lock")
	}
}
