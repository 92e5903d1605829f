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

// installHostPackages installs the missing ones of these packages. Other labs and test/part.sh use the same lock, because apt-get fails while
// another one runs. Without a missing package it does not wait.
func (l *Lab) installHostPackages(ctx context.Context, packages map[string]string) error {
	if len(missingOf(packages)) == 0 {
		return nil
	}
	if err := os.MkdirAll(l.cache, 0o755); err != nil {
		return err
	}
	unlock, err := lockFile(ctx, filepath.Join(l.cache, "install.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	missing := missingOf(packages) // another program may have installed them meanwhile
	if len(missing) == 0 {
		return nil
	}
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

func missingOf(packages map[string]string) (missing []string) {
	for pkg, file := range packages {
		if _, err := os.Stat(file); err != nil {
			missing = append(missing, pkg)
		}
	}
	slices.Sort(missing)
	return missing
}
