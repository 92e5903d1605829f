package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// kernel is the user-mode Linux that the nodes run.
type kernel struct {
	binary  string
	version string
	modules string // folder of this version's modules
}

// Paths of Debian's user-mode Linux, and of the C library that it is linked with.
const (
	umlBinary    = "usr/bin/linux.uml"
	umlModules   = "usr/lib/uml/modules"  // has a folder per version
	umlLibraries = "lib/x86_64-linux-gnu" // under / up to bookworm, under /usr from trixie on
	umlLoader    = "ld-linux-x86-64.so.2"
)

// kernel returns the nodes' kernel, and downloads it if the cache has none. It is from a newer suite than the nodes: since Linux
// 6.16, user-mode Linux intercepts system calls with seccomp(2) instead of ptrace(2) where this machine supports that, and commands
// in a node take a third of the time. The kernel alone uses that suite's C library.
func (l *Lab) kernel(ctx context.Context) (kernel, error) {
	suite := l.versions["DEBIAN_KERNEL_SUITE"]
	key := hash(suite, maybeMap, patchedMaybeMap)
	tree := filepath.Join(l.cache, "kernel", key, "tree")
	_, err := l.artifact(ctx, "kernel", key, func(dir string) error {
		unfinished := filepath.Join(dir, "tree")
		// The suite may not be released yet, and its mirror may be out of date.
		err := l.tool(ctx, "kernel", "mmdebstrap", "--mode=root", "--variant=extract", "--include=user-mode-linux",
			`--aptopt=Acquire::Check-Valid-Until "false"`, suite, unfinished)
		if err != nil {
			return err
		}
		libraries := umlLibraries
		if _, err := os.Stat(filepath.Join(unfinished, libraries, umlLoader)); err != nil {
			libraries = filepath.Join("usr", libraries)
		}
		binary := filepath.Join(unfinished, umlBinary)
		if _, err := patchKernel(binary); err != nil {
			return err
		}
		return l.tool(ctx, "kernel", "patchelf", "--set-interpreter", filepath.Join(tree, libraries, umlLoader),
			"--set-rpath", filepath.Join(tree, libraries), binary)
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

// sayKernel prints a line if the tests last ran on another kernel than the nodes'.
func (l *Lab) sayKernel(ctx context.Context, p *progress) error {
	k, err := l.kernel(ctx)
	if tested := l.versions["DEBIAN_KERNEL_VERSION"]; err == nil && k.version != tested {
		p.printf("     the nodes run Linux %s; the tests last ran on %s (DEBIAN_KERNEL_VERSION in versions.env)\n", k.version, tested)
	}
	return err
}
