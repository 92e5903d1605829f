package lab

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
)

//go:embed files/punch-hole.c
var punchHoleSource string

// punchHoleLibrary answers a shared library that keeps the files of the nodes' disks sparse: what a node zeroes becomes a
// hole again. It needs no header and no library at build time, so the compiler alone is enough.
func (l *Lab) punchHoleLibrary(ctx context.Context) (string, error) {
	dir, err := l.artifact(ctx, "punch-hole", hash(punchHoleSource), func(dir string) error {
		source := filepath.Join(dir, "punch-hole.c")
		if err := os.WriteFile(source, []byte(punchHoleSource), 0o644); err != nil {
			return err
		}
		return l.tool(ctx, "punch-hole", "gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-nostdlib", "-o", filepath.Join(dir, "punch-hole.so"), source)
	})
	return filepath.Join(dir, "punch-hole.so"), err
}
