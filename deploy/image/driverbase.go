package image

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// driverPackages is what the driver runs, and what these need to run. The extract
// variant adds nothing by itself, so the root (base-files) and a shell for
// scripts such as fsck.xfs are named.
var driverPackages = []string{
	"base-files", "dash",
	"lvm2", "thin-provisioning-tools", "kmod",
	"e2fsprogs", "xfsprogs", "btrfs-progs",
	"cryptsetup-bin", // encrypted volumes
	"util-linux", "mount",
}

// driverUnused is what those packages bring along and the driver never touches. Nearly
// half of the size is one Python script, xfs_scrub_all, with its interpreter,
// and an online scrubber with 38 MB of Unicode tables.
var driverUnused = []string{
	// xfs_scrub
	"/usr/bin/python3*", "/usr/bin/pydoc3*", "/usr/bin/pygettext3*", "/usr/bin/pdb3*", "/usr/bin/py3*",
	"/usr/lib/python3*", "/usr/share/python3*", "/etc/python3*", "/usr/lib/valgrind*",
	"/usr/sbin/xfs_scrub*", "/usr/lib/*/libicu*", "/usr/lib/*/libsqlite3*", "/usr/lib/*/libssl.so*",
	// D-Bus services and tools of GLib
	"/usr/lib/*/libglib-*", "/usr/lib/*/libgio-*", "/usr/lib/*/libgobject-*", "/usr/lib/*/libgmodule-*",
	"/usr/lib/*/libgthread-*", "/usr/lib/*/glib-2.0/*",
	// parts of cryptsetup for other formats than LUKS
	"/usr/sbin/integritysetup", "/usr/sbin/veritysetup",
	// logins
	"/usr/lib/*/security/*", "/etc/security/*", "/etc/pam.d/*", "/usr/sbin/pam*", "/usr/sbin/unix_*",
	"/usr/sbin/faillock", "/usr/sbin/mkhomedir_helper", "/usr/sbin/pwhistory_helper", "/usr/lib/*/libdb-5*",
	"/usr/lib/*/liblastlog2*", "/usr/bin/lslogins", "/usr/bin/su", "/usr/sbin/runuser",
	"/usr/sbin/agetty", "/usr/sbin/getty", "/usr/sbin/sulogin",
	// character sets, time zones, package tools, services of the host
	"/usr/lib/*/gconv/*", "/usr/share/zoneinfo/*", "/usr/share/perl5/*", "/usr/share/gcc/*",
	"/usr/share/pixmaps/*", "/usr/share/debconf/*", "/usr/sbin/dpkg-*", "/usr/bin/debconf*",
	"/etc/mime.types", "/etc/cron*", "/etc/logrotate.d/*", "/usr/lib/systemd/*", "/usr/lib/udev/*",
}

// DriverBase returns the path of the root file system below the driver's image: the one in the folder cache, or a new one. The cache key covers packages and exclusions; newer versions of the packages come when the cached
// file is removed. arch is Go's word for the processor; log gets what mmdebstrap says, whose environment has these variables besides.
func DriverBase(ctx context.Context, suite, arch, cache string, log io.Writer, env ...string) (string, error) {
	key := sha256.Sum256([]byte(strings.Join(append(driverPackages, driverUnused...), "\n")))
	path := filepath.Join(cache, "images", fmt.Sprintf("base-%s-%s-%x.tar.gz", suite, arch, key[:6]))
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	// Made under another name: what is in the cache is whole and checked.
	fresh := strings.TrimSuffix(path, ".tar.gz") + ".new.tar.gz"
	err := Debian(ctx, suite, driverPackages, fresh, Options{Variant: VariantExtract, Arch: debianArch(arch), Exclude: driverUnused, Log: log, Env: env})
	if err != nil {
		return "", err
	}
	missing, err := MissingLibraries(fresh)
	if err != nil {
		return "", err
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("%s lacks shared libraries, the list of unused files goes too far:\n  %s", fresh, strings.Join(missing, "\n  "))
	}
	return path, os.Rename(fresh, path)
}

// debianArch gives Debian's word for a Go architecture, where the two differ.
func debianArch(arch string) string {
	words := map[string]string{"arm": "armhf", "386": "i386", "ppc64le": "ppc64el"}
	if word, ok := words[arch]; ok {
		return word
	}
	return arch
}
