package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Checkout returns the root of the checkout, which must be the working directory or above it.
func Checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "versions.env")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("this is not run from within a checkout: no versions.env above the current folder")
}

// Version reads a value of versions.env.
func Version(file, key string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", file, key)
}

// BuildImage does what `make image` does, and returns the path of the archive. It prints one line if it succeeds.
func BuildImage(ctx context.Context, out io.Writer) (archive string, err error) {
	top, err := Checkout()
	if err != nil {
		return "", err
	}
	archive = filepath.Join(top, "dist", "nodelvm-amd64.tar")
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "./cmd/image", "--out", archive)
	cmd.Dir = filepath.Join(top, "deploy", "image")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as in the Makefile, so that Go's build cache serves both
	begin := time.Now()
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the image: %w\n%s", err, said)
	}
	_, _ = fmt.Fprintf(out, "  ok %-40s %6.1fs\n", "image of the driver", time.Since(begin).Seconds()) // continue if the output is closed
	return archive, nil
}
