package lab

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
)

//go:embed files/preload.c
var preloadSource string

//go:embed files/clock.c
var clockSource string

// preloadLibrary returns a shared library for the nodes' kernels: it keeps the files of their disks sparse, and lets old kernels
// run on new processors.
func (l *Lab) preloadLibrary(ctx context.Context) (string, error) {
	return l.compileC(ctx, "preload", preloadSource, "-shared", "-fPIC", "-nostdlib")
}

// clockProgram returns a program that lets the processes of a node read the clock without a system call.
func (l *Lab) clockProgram(ctx context.Context) (string, error) {
	return l.compileC(ctx, "clock", clockSource, "-static")
}

// compileC returns the program or library of one source file.
func (l *Lab) compileC(ctx context.Context, name, text string, flags ...string) (string, error) {
	dir, err := l.artifact(ctx, name, hash(append([]string{text}, flags...)...), func(dir string) error {
		source := filepath.Join(dir, name+".c")
		if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
			return err
		}
		argv := append([]string{"gcc", "-O2", "-Wall", "-Werror", "-o", filepath.Join(dir, name), source}, flags...)
		return l.tool(ctx, name, argv...)
	})
	return filepath.Join(dir, name), err
}
