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
	"slices"
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

// nodeSuite returns the Debian suite of nodes with this processor.
func (l *Lab) nodeSuite(arch string) string {
	if arch == thisArch {
		return l.versions["DEBIAN_NODE_SUITE"]
	}
	return l.versions["DEBIAN_IMAGE_SUITE"] // see unpackRootTree
}

// rootImage returns the ext4 image of a Debian node without Kubernetes, and builds it if the cache has none.
func (l *Lab) rootImage(ctx context.Context, arch string) (string, error) {
	suite, packages, size := l.nodeSuite(arch), strings.Join(nodePackages, ","), fmt.Sprint(rootDiskSize)
	if arch != thisArch {
		return l.artifactRoot(ctx, "root-"+arch, hash(suite, packages, scriptsOfPackages, size), func(tree string) error {
			return l.unpackRootTree(ctx, arch, tree)
		})
	}
	kernel, err := l.kernel(ctx)
	if err != nil {
		return "", err
	}
	return l.artifactRoot(ctx, "root", hash(suite, kernel.version, packages, labInit, lvmLocal, size), func(tree string) error {
		return l.buildRootTree(ctx, tree, kernel)
	})
}

// artifactRoot returns the cache's image of a root, and lets build make its tree if the cache has none.
func (l *Lab) artifactRoot(ctx context.Context, kind, key string, build func(tree string) error) (string, error) {
	dir, err := l.artifact(ctx, kind, key, func(dir string) error {
		tree := filepath.Join(dir, "tree")
		if err := build(tree); err != nil {
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

// scriptsOfPackages does what a node needs of the scripts of its packages; $1 is the root.
const scriptsOfPackages = `cd "$1"
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
echo "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin" >>etc/passwd
ln -s mawk usr/bin/awk
echo "include /etc/ld.so.conf.d/*.conf" >etc/ld.so.conf
ldconfig -r .`

// unpackRootTree unpacks a root of another architecture into dir. The scripts of its packages do not run on this processor, and none of them needs to
// before a node boots: since trixie base-files has the links /bin and /lib, which a script made before.
func (l *Lab) unpackRootTree(ctx context.Context, arch, dir string) error {
	err := l.debootstrap(ctx, dir, l.nodeSuite(arch), "--variant=extract", "--architectures="+arch, "--include=?essential")
	if err != nil {
		return err
	}
	return errors.Join(
		l.tool(ctx, "root-image", "sh", "-ec", scriptsOfPackages, "scripts", dir),
		os.MkdirAll(filepath.Join(dir, "usr/lib/modules"), 0o755),
		finishRoot(dir),
	)
}

// debootstrap makes the root of a node in dir.
func (l *Lab) debootstrap(ctx context.Context, dir, suite string, options ...string) error {
	argv := slices.Concat([]string{"mmdebstrap", "--mode=root", "--include=" + strings.Join(nodePackages, ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"},
		options, []string{suite, dir})
	return l.tool(ctx, "root-image", argv...)
}

// finishRoot removes what mmdebstrap copies from this machine, and makes the folder of the share.
func finishRoot(dir string) error {
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "etc/resolv.conf"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "etc/hostname"), nil, 0o644),
		os.MkdirAll(filepath.Join(dir, "mnt/lab"), 0o755),
	)
}

// buildRootTree installs Debian into dir and adds the kernel's modules and the lab's files.
func (l *Lab) buildRootTree(ctx context.Context, dir string, kernel kernel) error {
	if err := l.debootstrap(ctx, dir, l.nodeSuite(thisArch), "--variant=apt"); err != nil {
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
		finishRoot(dir),
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
