package lab

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// nodePackages are the Debian packages of a node's root image: those of a storage node, those that containers need, and an SSH
// server for the lab.
var nodePackages = []string{
	"lvm2", "thin-provisioning-tools", "xfsprogs", "btrfs-progs", "e2fsprogs", "cryptsetup-bin",
	"udev", "kmod", "mount", "util-linux", "procps", "iproute2", "busybox-static", "ca-certificates",
	"runc", "containernetworking-plugins", "openssh-server", "checkpolicy",
}

//go:embed files/lab-init
var labInit string

// lvmLocal lets LVM use user-mode Linux's block devices, which are not in its list of device types.
const lvmLocal = "devices { types = [ \"ubd\", 16 ] }\n"

// rootImage returns the ext4 image of a Debian node without Kubernetes, and builds it if the cache has none.
func (l *Lab) rootImage(ctx context.Context) (string, error) {
	kernel, err := l.kernel(ctx)
	if err != nil {
		return "", err
	}
	key := hash(l.versions["DEBIAN_NODE_SUITE"], kernel.version, strings.Join(nodePackages, ","), labInit, lvmLocal, fmt.Sprint(rootDiskSize))
	dir, err := l.artifact(ctx, "root", key, func(dir string) error {
		tree := filepath.Join(dir, "tree")
		if err := l.buildRootTree(ctx, tree, kernel); err != nil {
			return err
		}
		image := filepath.Join(dir, "root.img")
		if err := createSparse(image, rootDiskSize); err != nil {
			return err
		}
		if err := l.tool(ctx, "root-image", "mkfs.ext4", "-q", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-d", tree, image); err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
	return filepath.Join(dir, "root.img"), err
}

// buildRootTree installs Debian into dir and adds the kernel's modules and the lab's files.
func (l *Lab) buildRootTree(ctx context.Context, dir string, kernel kernel) error {
	err := l.tool(ctx, "root-image", "mmdebstrap", "--mode=root", "--variant=apt",
		"--include="+strings.Join(nodePackages, ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		l.versions["DEBIAN_NODE_SUITE"], dir)
	if err != nil {
		return err
	}
	// usr/lib, not lib: lib is a link, and must stay one.
	modules := filepath.Join(dir, "usr/lib/modules")
	if err := os.MkdirAll(modules, 0o755); err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(modules, kernel.version), os.DirFS(kernel.modules)); err != nil {
		return err
	}
	if err := l.tool(ctx, "root-image", "depmod", "-b", dir, kernel.version); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "usr/sbin/lab-init"), []byte(labInit), 0o755),
		os.WriteFile(filepath.Join(dir, "etc/lvm/lvmlocal.conf"), []byte(lvmLocal), 0o644),
		os.WriteFile(filepath.Join(dir, "etc/resolv.conf"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "etc/hostname"), nil, 0o644),
		os.MkdirAll(filepath.Join(dir, "mnt/lab"), 0o755),
	)
}

// hash returns a short digest of the inputs of a build.
func hash(inputs ...string) string {
	h := sha256.New()
	for _, in := range inputs {
		_, _ = fmt.Fprintf(h, "%d:%s\n", len(in), in)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
