package lab

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hardwarePackages returns the Debian packages that a lab with nodes on emulated hardware needs in addition to hostPackages.
func hardwarePackages(arch string) map[string]string {
	return map[string]string{
		platforms[arch].pkg: platforms[arch].qemu,
		"qemu-utils":        "/usr/bin/qemu-img",
		"xz-utils":          "/usr/bin/xz", // of the modules of newer kernels
	}
}

// bootModules are the kernel's modules that a node on emulated hardware needs for its root disk, its network, the share and its disks. The
// node loads all others itself.
var bootModules = []string{
	"virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "crc32c_generic", "ext4", "9pnet_virtio", "9p", "nvme", "sd_mod", "virtio_scsi", "ahci",
}

//go:embed files/hardware-init
var hardwareInit string

// hardwareKernel is Debian's stock kernel.
type hardwareKernel struct {
	image   string
	initrd  string
	modules string // the folder of its version's folder
}

// hardwareKernel returns the kernel of nodes on emulated hardware: the one of a Debian suite, or of the node's. It downloads it if the cache has none.
func (l *Lab) hardwareKernel(ctx context.Context, arch, suite string) (hardwareKernel, error) {
	suite = cmp.Or(suite, l.nodeSuite(arch))
	dir, err := l.artifact(ctx, "hardware-kernel", hash(arch, suite, hardwareInit, strings.Join(bootModules, ",")), func(dir string) error {
		return l.buildHardwareKernel(ctx, arch, suite, dir)
	})
	return hardwareKernel{filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "initrd"), filepath.Join(dir, "modules")}, err
}

// buildHardwareKernel leaves the kernel, its modules and the initial RAM disk in dir.
func (l *Lab) buildHardwareKernel(ctx context.Context, arch, suite, dir string) error {
	const log = "hardware-kernel"
	tree := filepath.Join(dir, "tree")
	err := l.tool(ctx, log, "mmdebstrap", "--mode=root", "--variant=extract", "--architectures="+arch,
		"--include=linux-image-"+arch+",busybox-static", suite, tree)
	if err != nil {
		return err
	}
	version, err := onlyEntry(filepath.Join(tree, "usr/lib/modules"), filepath.Join(tree, "lib/modules"))
	if err != nil {
		return err
	}
	modules := filepath.Join(dir, "modules")
	busybox := filepath.Join(tree, "usr/bin/busybox")
	if _, err := os.Stat(busybox); err != nil {
		busybox = filepath.Join(tree, "bin/busybox") // before trixie
	}
	err = errors.Join(
		os.Rename(busybox, filepath.Join(dir, "busybox")),
		os.Rename(filepath.Join(tree, "boot", "vmlinuz-"+filepath.Base(version)), filepath.Join(dir, "vmlinuz")),
		os.Mkdir(modules, 0o755),
		os.Rename(version, filepath.Join(modules, filepath.Base(version))),
		os.RemoveAll(tree),
	)
	if err != nil {
		return err
	}
	// depmod looks below lib/modules.
	base := filepath.Join(dir, "base")
	err = errors.Join(os.MkdirAll(filepath.Join(base, "lib"), 0o755), os.Symlink(modules, filepath.Join(base, "lib/modules")))
	if err != nil {
		return err
	}
	if err := l.tool(ctx, log, "depmod", "-b", base, filepath.Base(version)); err != nil {
		return err
	}
	return errors.Join(l.buildInitrd(ctx, dir, filepath.Join(modules, filepath.Base(version))), os.RemoveAll(base))
}

// onlyEntry returns the only entry of the first of these folders that exists.
func onlyEntry(dirs ...string) (string, error) {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil || len(entries) != 1 {
			return "", fmt.Errorf("%s: want the modules of exactly one kernel, have %d: %w", dir, len(entries), err)
		}
		return filepath.Join(dir, entries[0].Name()), nil
	}
	return "", fmt.Errorf("none of %s exists", strings.Join(dirs, ", "))
}

// buildInitrd writes the initial RAM disk dir/initrd: busybox, hardware-init, and bootModules with what they depend on.
func (l *Lab) buildInitrd(ctx context.Context, dir, modules string) error {
	tree := filepath.Join(dir, "initrd.tree")
	for _, sub := range []string{"bin", "dev", "proc", "root", "modules"} {
		if err := os.MkdirAll(filepath.Join(tree, sub), 0o755); err != nil {
			return err
		}
	}
	dependencies, err := os.ReadFile(filepath.Join(modules, "modules.dep"))
	if err != nil {
		return err
	}
	builtIn, err := os.ReadFile(filepath.Join(modules, "modules.builtin"))
	if err != nil {
		return err
	}
	files, err := loadOrder(string(dependencies), string(builtIn), bootModules)
	if err != nil {
		return err
	}
	var order strings.Builder
	for _, file := range files {
		name, err := l.copyModule(ctx, filepath.Join(modules, file), filepath.Join(tree, "modules"))
		if err != nil {
			return err
		}
		order.WriteString(name + "\n")
	}
	err = errors.Join(
		os.WriteFile(filepath.Join(tree, "modules/order"), []byte(order.String()), 0o644),
		os.WriteFile(filepath.Join(tree, "init"), []byte(hardwareInit), 0o755),
		os.Rename(filepath.Join(dir, "busybox"), filepath.Join(tree, "bin/busybox")),
	)
	if err != nil {
		return err
	}
	if err := l.toolIn(ctx, "hardware-kernel", tree, nil, "sh", "-ec", "find . | busybox cpio -o -H newc >../initrd"); err != nil {
		return err
	}
	return os.RemoveAll(tree)
}

// copyModule copies a module's file into a folder, uncompressed, and returns its name there.
func (l *Lab) copyModule(ctx context.Context, file, dir string) (string, error) {
	name := filepath.Base(file)
	if plain, compressed := strings.CutSuffix(name, ".xz"); compressed {
		return plain, l.tool(ctx, "hardware-kernel", "sh", "-ec", `xz -dc "$1" >"$2"`, "xz", file, filepath.Join(dir, plain))
	}
	return name, l.tool(ctx, "hardware-kernel", "cp", file, dir)
}

// loadOrder returns the files of the modules and of all modules that they depend on, in an order in which each can be loaded, without those that
// the kernel has built in. dependencies is the text of modules.dep (modules.dep(5)), builtIn that of modules.builtin.
func loadOrder(dependencies, builtIn string, modules []string) ([]string, error) {
	files, needs, inside := map[string]string{}, map[string][]string{}, map[string]bool{}
	for line := range strings.Lines(dependencies) {
		file, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		files[moduleName(file)] = file
		needs[file] = strings.Fields(rest)
	}
	for line := range strings.Lines(builtIn) {
		inside[moduleName(strings.TrimSpace(line))] = true
	}
	var order []string
	var add func(file string)
	add = func(file string) {
		if slices.Contains(order, file) {
			return
		}
		for _, needed := range needs[file] {
			add(needed)
		}
		order = append(order, file)
	}
	for _, module := range modules {
		file, found := files[module]
		if inside[module] {
			continue
		}
		if !found {
			return nil, fmt.Errorf("the kernel has no module %s", module)
		}
		add(file)
	}
	return order, nil
}

// moduleName returns the name of a module by its file, such as nvme_core for nvme-core.ko.xz.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	return strings.ReplaceAll(name, "-", "_")
}
