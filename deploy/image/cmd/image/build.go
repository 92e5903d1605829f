package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/deploy/image"
)

// packages is what the driver runs, and what these need to run. The extract
// variant adds nothing by itself, so the root (base-files) and a shell for
// scripts such as fsck.xfs are named.
var packages = []string{
	"base-files", "dash",
	"lvm2", "thin-provisioning-tools", "kmod",
	"e2fsprogs", "xfsprogs", "btrfs-progs",
	"util-linux", "mount",
}

// unused is what those packages bring along and the driver never touches. Nearly
// half of the size is one Python script, xfs_scrub_all, with its interpreter,
// and an online scrubber with 38 MB of Unicode tables.
var unused = []string{
	// xfs_scrub
	"/usr/bin/python3*", "/usr/bin/pydoc3*", "/usr/bin/pygettext3*", "/usr/bin/pdb3*", "/usr/bin/py3*",
	"/usr/lib/python3*", "/usr/share/python3*", "/etc/python3*", "/usr/lib/valgrind*",
	"/usr/sbin/xfs_scrub*", "/usr/lib/*/libicu*", "/usr/lib/*/libsqlite3*", "/usr/lib/*/libssl.so*",
	// D-Bus services and tools of GLib
	"/usr/lib/*/libglib-*", "/usr/lib/*/libgio-*", "/usr/lib/*/libgobject-*", "/usr/lib/*/libgmodule-*",
	"/usr/lib/*/libgthread-*", "/usr/lib/*/glib-2.0/*",
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

// base returns the path of the root file system for arch: the cached one, or
// one made now. The cache key covers packages and exclusions; newer versions of the packages
// come when the cached file is removed.
func base(ctx context.Context, root, arch string, verbose bool) (string, error) {
	suite, err := readKey(filepath.Join(root, "versions.env"), "DEBIAN_IMAGE_SUITE=")
	if err != nil {
		return "", err
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(strings.Join(append(packages, unused...), "\n")))
	path := filepath.Join(dir, "images", fmt.Sprintf("base-%s-%s-%x.tar.gz", suite, arch, key[:6]))
	if _, err := os.Stat(path); err == nil {
		fmt.Println("* root file system from the cache:", path)
		return path, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	options := []image.Option{
		image.WithVariant(image.VariantExtract),
		image.WithArch(debianArch(arch)),
		image.WithExclude(unused...),
	}
	if verbose {
		options = append(options, image.WithLog(os.Stderr))
	}
	// Made under another name: what is in the cache is whole and checked.
	fresh := strings.TrimSuffix(path, ".tar.gz") + ".new.tar.gz"
	err = step("root file system of Debian "+suite+", about a minute", func() error {
		return image.Debian(ctx, suite, packages, fresh, options...)
	})
	if err != nil {
		return "", err
	}
	missing, err := image.MissingLibraries(fresh)
	if err != nil {
		return "", err
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("%s lacks shared libraries, the list of unused files goes too far:\n  %s", fresh, strings.Join(missing, "\n  "))
	}
	return path, os.Rename(fresh, path)
}

// compile builds the static driver binary.
func compile(ctx context.Context, root, arch, version, out string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -X main.version="+version, "-o", out, "./cmd/nodelvm")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build ./cmd/nodelvm: %w", err)
	}
	return nil
}

// debianArch gives Debian's word for a Go architecture, where the two differ.
func debianArch(arch string) string {
	words := map[string]string{"arm": "armhf", "386": "i386", "ppc64le": "ppc64el"}
	if word, ok := words[arch]; ok {
		return word
	}
	return arch
}

func cacheDir() (string, error) {
	if dir := os.Getenv("NODELVM_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder (set NODELVM_CACHE): %w", err)
	}
	return filepath.Join(dir, "nodelvm"), nil
}

// findRoot returns the checkout: dir if given, else the closest folder upwards
// that has the file of versions.
func findRoot(dir string) (string, error) {
	const mark = "versions.env"
	if dir != "" {
		_, err := os.Stat(filepath.Join(dir, mark))
		return dir, err
	}
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, mark)); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no %s in %s or above: run this in the checkout, or name it with --root", mark, start)
		}
	}
}

// readKey returns what follows prefix on the one line that starts with it.
func readKey(path, prefix string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), prefix); ok {
			return strings.Trim(strings.TrimSpace(value), `"`), nil
		}
	}
	return "", fmt.Errorf("%s has no line that starts with %q", path, prefix)
}

// step prints what is being done and how long it took.
func step(what string, f func() error) error {
	start := time.Now()
	fmt.Printf("* %s ... ", what)
	err := f()
	outcome := "done"
	if err != nil {
		outcome = "FAILED"
	}
	fmt.Printf("%s (%.1f s)\n", outcome, time.Since(start).Seconds())
	return err
}
