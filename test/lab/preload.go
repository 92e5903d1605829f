package lab

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
)

//go:embed files/preload.c
var preloadSource string

// preloadLibrary returns a shared library for the nodes' kernels: it keeps the files of their disks sparse, and lets old kernels
// run on new processors. It is built without headers and libraries, so the compiler alone is enough.
func (l *Lab) preloadLibrary(ctx context.Context) (string, error) {
	dir, err := l.artifact(ctx, "preload", hash(preloadSource), func(dir string) error {
		source := filepath.Join(dir, "preload.c")
		if err := os.WriteFile(source, []byte(preloadSource), 0o644); err != nil {
			return err
		}
		return l.tool(ctx, "preload", "gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-nostdlib", "-o", filepath.Join(dir, "preload.so"), source)
	})
	return filepath.Join(dir, "preload.so"), err
}
