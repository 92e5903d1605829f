package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/deploy/image"
)

// base returns the path of the driver's root file system for arch.
func base(ctx context.Context, root, arch string, verbose bool) (string, error) {
	suite, err := readKey(filepath.Join(root, "versions.env"), "DEBIAN_IMAGE_SUITE=")
	if err != nil {
		return "", err
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	log := io.Writer(io.Discard)
	if verbose {
		log = os.Stderr
	}
	var path string
	err = step("root file system of Debian "+suite+" (a minute, the first time)", func() (err error) {
		path, err = image.DriverBase(ctx, suite, arch, dir, log)
		return err
	})
	return path, err
}

// tags leave out what would make the linker keep every exported method: text/template finds methods by name. Each program then needs two
// megabytes less memory. TestImports holds cmd/nodelvm to it.
const tags = "grpcnotrace"

// compile builds the static programs in the folder out.
func compile(ctx context.Context, root, arch, version, out string) error {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags=" + tags, "-ldflags=-s -w -X main.version=" + version, "-o", out + "/"}
	for _, name := range programs {
		args = append(args, "./cmd/"+name)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build of %s: %w", strings.Join(programs, " and "), err)
	}
	return nil
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
