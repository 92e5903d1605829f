package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hostPackages are the Debian packages that the machine itself needs, each with a file that only an installed package has.
var hostPackages = map[string]string{
	"mmdebstrap":     "/usr/bin/mmdebstrap",
	"patchelf":       "/usr/bin/patchelf",
	"e2fsprogs":      "/sbin/mkfs.ext4",
	"busybox-static": busyboxBinary,
	"iproute2":       "/sbin/ip",
	"kmod":           "/sbin/depmod",
	"gcc":            "/usr/bin/gcc",
	"libc6-dev":      "/usr/include/stdio.h",
}

// installHostPackages installs the missing hostPackages. Other labs and test/part.sh use the same lock, because apt-get fails while
// another one runs.
func (l *Lab) installHostPackages(ctx context.Context) error {
	if err := os.MkdirAll(l.cache, 0o755); err != nil {
		return err
	}
	unlock, err := lockFile(ctx, filepath.Join(l.cache, "install.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	var missing []string
	for pkg, file := range hostPackages {
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	if err := l.toolIn(ctx, "apt", "", env, "apt-get", "update"); err != nil {
		return err
	}
	err = l.toolIn(ctx, "apt", "", env, append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, missing...)...)
	if err != nil {
		return fmt.Errorf("install %s: %w", strings.Join(missing, ", "), err)
	}
	return nil
}
