package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// kernel is a user-mode Linux of which the nodes are instances.
type kernel struct {
	binary  string
	version string
	modules string // folder of this version's
}

// Where Debian has it, and the C library that it was linked with.
const (
	umlBinary    = "usr/bin/linux.uml"
	umlModules   = "usr/lib/uml/modules"  // a folder per version
	umlLibraries = "lib/x86_64-linux-gnu" // under / up to bookworm, under /usr from trixie on
	umlLoader    = "ld-linux-x86-64.so.2"
)

// kernel answers the nodes' kernel, fetching it if the cache has none. It is of a newer suite than the nodes are: since
// Linux 6.16 what runs in a node is watched by seccomp(2) rather than ptrace(2), where this machine has that, and a node's
// commands take a third of the time. The C library of that suite comes with it, for its use alone.
func (l *Lab) kernel(ctx context.Context) (kernel, error) {
	suite := l.versions["DEBIAN_KERNEL_SUITE"]
	key := hash(suite)
	tree := filepath.Join(l.cache, "kernel", key, "tree")
	_, err := l.artifact(ctx, "kernel", key, func(dir string) error {
		unfinished := filepath.Join(dir, "tree")
		// A suite that is yet to be released: its mirror may be old.
		err := l.tool(ctx, "kernel", "mmdebstrap", "--mode=root", "--variant=extract", "--include=user-mode-linux",
			`--aptopt=Acquire::Check-Valid-Until "false"`, suite, unfinished)
		if err != nil {
			return err
		}
		libraries := umlLibraries
		if _, err := os.Stat(filepath.Join(unfinished, libraries, umlLoader)); err != nil {
			libraries = filepath.Join("usr", libraries)
		}
		return l.tool(ctx, "kernel", "patchelf", "--set-interpreter", filepath.Join(tree, libraries, umlLoader),
			"--set-rpath", filepath.Join(tree, libraries), filepath.Join(unfinished, umlBinary))
	})
	if err != nil {
		return kernel{}, err
	}
	modules := filepath.Join(tree, umlModules)
	entries, err := os.ReadDir(modules)
	if err != nil {
		return kernel{}, err
	}
	if len(entries) != 1 {
		return kernel{}, fmt.Errorf("%s: want the modules of exactly one kernel, have %d", modules, len(entries))
	}
	version := entries[0].Name()
	return kernel{binary: filepath.Join(tree, umlBinary), version: version, modules: filepath.Join(modules, version)}, nil
}

// sayKernel prints a line if the nodes' kernel is not the one that the tests last ran on.
func (l *Lab) sayKernel(ctx context.Context, p *progress) error {
	k, err := l.kernel(ctx)
	if tested := l.versions["DEBIAN_KERNEL_VERSION"]; err == nil && k.version != tested {
		p.printf("     the nodes run Linux %s; the tests last ran on %s (DEBIAN_KERNEL_VERSION in versions.env)\n", k.version, tested)
	}
	return err
}
